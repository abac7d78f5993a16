"""Notes on a corpus in another language than its analyzer and its models are for."""

from pathlib import Path

import pytest

from beamrank.formats.corpora import list_units
from pipelines.plan.languages import language_notes, main_script
from tests.support.small_collection import DOCS, SmallCollection

_RUSSIAN = "Лебедь рвётся в облака, рак пятится назад, а щука тянет в воду"


@pytest.mark.parametrize(
    ("texts", "script"),
    [
        (["Amber fjord", "été 12 %"], "LATIN"),
        ([_RUSSIAN, "with a few words"], "CYRILLIC"),
        (["東京都の天気は晴れです"], "HIRAGANA"),
        (["北京的天气很好 today"], "CJK"),
        (["12.5 %", ""], ""),
    ],
    ids=["latin", "cyrillic", "japanese", "chinese", "no letters"],
)
def test_script_is_of_more_than_half_of_the_letters(texts: list[str], script: str) -> None:
    assert main_script(texts) == script


def _notes(folder: Path, text: str, language: str, checkpoint: str = "embedded:mono") -> list[str]:
    made = SmallCollection(folder, {doc: f"{text} {doc}" for doc in DOCS}).with_index()
    made.keys["index"] |= {"language": language}
    made.keys |= {"mono": {"checkpoint": checkpoint, "k": 3}}
    config = made.config
    return list(language_notes(config, list_units(config.corpus)))


def test_notes_name_the_missing_analyzer_and_the_english_model(tmp_path: Path) -> None:
    analyzer, model = _notes(tmp_path, _RUSSIAN, "en")
    assert "`index.language`" in analyzer
    assert "ru" in analyzer
    assert "embedded:mono" in model


def test_analyzer_of_another_language_is_a_note_on_the_english_model(tmp_path: Path) -> None:
    (model,) = _notes(tmp_path, "le renard brun saute", "fr")
    assert "embedded:mono" in model


def test_english_docs_and_other_checkpoints_have_no_notes(tmp_path: Path) -> None:
    assert _notes(tmp_path, "the quick brown fox", "en") == []
    assert _notes(tmp_path, _RUSSIAN, "ru", "BAAI/bge-reranker-v2-m3") == []

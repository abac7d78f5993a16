"""What a user should know about the language of a corpus before a run: analyzers and models are
for one.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from beamrank.config.run import RunConfig
from beamrank.errors import DataError
from beamrank.formats.corpora import read_unit
from beamrank.formats.texts.units import CorpusUnit
from models.checkpoints.sources import EMBEDDED

_DOCS, _LETTERS_OF_A_DOC = 1000, 1000
_LATIN = "LATIN"
# The values of `index.language` for a script, by the first word of its letters' names in Unicode.
_LANGUAGES = {
    "ARABIC": "ar or fa",
    "BENGALI": "bn",
    "CJK": "zh",
    "CYRILLIC": "ru or uk",
    "DEVANAGARI": "hi",
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "TELUGU": "te",
    "THAI": "th",
}


def main_script(texts: Iterable[str]) -> str:
    """The script of more than half of the letters, or else of most letters that are not Latin, as
    Unicode names it; empty without letters.
    """
    letters = Counter[str]()
    for text in texts:
        letters.update(filter(str.isalpha, text[:_LETTERS_OF_A_DOC]))
    scripts = Counter[str]()
    for letter, count in letters.items():
        scripts[unicodedata.name(letter, "").partition(" ")[0]] += count
    if 2 * scripts[_LATIN] >= scripts.total():
        return _LATIN if scripts.total() else ""
    del scripts[_LATIN]
    # Japanese has more Chinese letters than its own.
    return "HIRAGANA" if scripts["HIRAGANA"] else max(scripts, key=lambda name: scripts[name])


def language_notes(config: RunConfig, units: Sequence[CorpusUnit]) -> Iterator[str]:
    """Notes on an analyzer and on models that are for another language than the corpus. Reads its
    first docs where the configuration has such an analyzer or model.
    """
    language = "en" if config.index is None else config.index.language
    analyzed = config.index is not None and language == "en"
    embedded = {
        stage.name: checkpoint
        for stage in config.cascade
        if (checkpoint := str(getattr(stage.section, "checkpoint", ""))).startswith(EMBEDDED)
    }
    script = _script_of(units) if analyzed or embedded else _LATIN
    if analyzed and script != _LATIN:
        yield (
            f"most letters of the first docs are {script.title()}, and `index.language` is en: its "
            f"analyzer cuts such words wrongly. Set {_LANGUAGES.get(script, 'pretokenized')}"
        )
    if script == _LATIN and language in ("en", "pretokenized"):
        return
    for name, checkpoint in embedded.items():
        yield (
            f"{name} has {checkpoint}, which knows English alone: give a multilingual checkpoint "
            "(docs/reference/checkpoints.md#other-languages)"
        )


def _script_of(units: Sequence[CorpusUnit]) -> str:
    """The main script of the first docs; Latin where they have no letters."""
    # A file that cannot be read is an error once it is used.
    with suppress(DataError):
        batch = next(read_unit(units[0], batch_docs=_DOCS), None)
        return (main_script(batch.texts) if batch else "") or _LATIN
    return _LATIN

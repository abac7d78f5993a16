"""`index.language`: one analyzer at index and search, for languages and pretokenized texts; another
Lucene.
"""

import pytest

from beamrank.config.stages import LANGUAGES
from beamrank.errors import PreflightError
from beamrank.records import Topic
from models.lucene import jvm
from models.lucene.bm25 import Bm25Searcher, _analyzer
from models.lucene.build import build_index
from models.lucene.index import LUCENE, IndexKind, check_index, require_index
from tests.support.corpora import save_corpus
from tests.support.models.stages import a_stage
from tests.support.tiers import slow_but

pytestmark = pytest.mark.jvm

# Of each language two docs, and a query with the hits that its analyzer finds: words of two
# characters, words of a dictionary, words without the article, without the ending of the plural.
DOCS = {
    "zh-economy": "中国经济增长很快",
    "zh-king": "国家集中管理,国王在中间",
    "ja-tokyo": "東京都庁は東京都にある",
    "ja-kyoto": "京都の古い寺",
    "ar-book": "اشتريت الكتاب من السوق",
    "ar-sun": "الشمس مشرقة اليوم",
    "de-house": "Das Haus am See",
    "de-garden": "Im Garten blühen Rosen",
}
QUERIES = {
    "zh": ("中国", ["zh-economy"]),
    "ja": ("京都", ["ja-kyoto"]),
    "ar": ("كتاب", ["ar-book"]),
    "de": ("Häuser", ["de-house"]),
}
# `segments_1` of an index that Lucene 10.4.0 wrote.
LUCENE_10 = bytes.fromhex(
    "3fd76c17087365676d656e74730000000a2c0cc452a8420574ce294e8d584069fe01310a04000a00000000000000040100000001"
    "0a0400025f302c0cc452a8420574ce294e8d584069fb094c7563656e65313034"
)


def _build(folder, docs, kind):
    return build_index(save_corpus(folder, docs), str(folder / "index"), 1, kind=kind)


def _found(folder, text, language):
    with Bm25Searcher(str(folder / "index"), 0.9, 0.4, 1, language) as searcher:
        return [
            (row["doc_id"], row["score"])
            for row in searcher.search([Topic("q", text)], 10).to_pylist()
        ]


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    folder = tmp_path_factory.mktemp("english")
    _build(folder, DOCS, IndexKind())
    return folder


@pytest.mark.parametrize("language", slow_but(("zh",), QUERIES))
def test_analyzer_of_a_language_changes_what_is_found(language, english, tmp_path):
    query, expected = QUERIES[language]
    _build(tmp_path, DOCS, IndexKind(language))
    found = _found(tmp_path, query, language)
    assert [doc_id for doc_id, _ in found] == expected
    assert [doc_id for doc_id, _ in _found(english, query, "en")][:1] != expected

    def by_anserini():
        import jnius

        # What pyserini calls.
        searcher = jnius.autoclass("io.anserini.search.SimpleSearcher")(str(tmp_path / "index"))
        searcher.set_language(language)
        return [(hit.docid, hit.score) for hit in searcher.search(query, 10)]

    assert found == jvm.call(by_anserini)


def test_pretokenized_texts_are_cut_at_white_space_alone(tmp_path):
    _build(tmp_path, {"d1": "the ##ing U.S. Häuser", "d2": "ing us"}, IndexKind("pretokenized"))
    for word in ("the", "##ing", "U.S.", "Häuser"):
        assert [doc_id for doc_id, _ in _found(tmp_path, word, "pretokenized")] == ["d1"]
    assert _found(tmp_path, "häuser u.s. The", "pretokenized") == []


def test_languages_are_those_of_anserini():
    def of_anserini():
        import jnius

        codes = set(
            jnius.autoclass("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()
        )
        major = int(jnius.autoclass("org.apache.lucene.util.Version").LATEST.major)
        analyzers = {language: _analyzer(language).getClass().getName() for language in LANGUAGES}
        return codes, major, analyzers

    codes, major, analyzers = jvm.call(of_anserini)
    without = {
        language for language, name in analyzers.items() if name.endswith("WhitespaceAnalyzer")
    }
    assert without == {"en", "ha", "pretokenized", "so", "sw", "yo"}
    assert {*LANGUAGES} - without == codes
    assert major == LUCENE


def test_language_is_a_key_of_the_first_stage_alone():
    plain, german = a_stage("retrieve"), a_stage("retrieve", language="de")
    assert {**plain.keys, "language": "de"} == german.keys
    assert german.config_keys["language"] == "index.language"


def test_index_of_another_language_is_refused(english):
    with pytest.raises(PreflightError, match=r"`index.language: en`, .*de"):
        check_index(str(english / "index"), "", IndexKind("de"))
    (english / "index" / "beamrank.json").rename(english / "record")
    assert check_index(str(english / "index"), "", IndexKind("de")).corpus_digest is None
    (english / "record").rename(english / "index" / "beamrank.json")


@pytest.mark.parametrize(("written", "begun"), [(10, 10), (10, 9), (9, 7)])
def test_index_of_another_lucene_is_refused_with_both_versions(written, begun, tmp_path):
    content = bytearray(LUCENE_10)
    assert content[35:39] == bytes([10, 4, 0, 10])
    content[35], content[38] = written, begun
    (tmp_path / "segments_1").write_bytes(content)
    with pytest.raises(PreflightError, match=rf"Lucene {begun} .*Lucene {written}\.4\.0"):
        require_index(str(tmp_path))
    content[35] = content[38] = 9
    (tmp_path / "segments_1").write_bytes(content)
    assert require_index(str(tmp_path)) is None

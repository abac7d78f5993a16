"""The rule for ids: what passes it survives every file and every reader; what does not is refused
everywhere.
"""

import unicodedata

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_writer import write_run
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.formats.values import RowError, are_usable, check_id, check_query_id, is_usable

BAD_CHARACTERS = (
    "\0\t\n\x0b\x0c\r\x1b\x1c\x1f "
    "\x7f\x80\x85\x9b\x9f\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
# The rule ignores how an id looks, joins and its direction, and what it means to a shell or Java.
GOOD_IDS = (
    "7",
    "FT-1#2",
    "é",
    "\u200bx",
    "\u202egnp",
    "\U0001f4a9",
    "a\u0301",
    "$(x)",
    "../x",
    "-1e309",
    '"q"',
)

_texts = st.text(st.one_of(st.characters(), st.sampled_from(BAD_CHARACTERS + "#ab")), max_size=6)
_ids = _texts.filter(is_usable)


@settings(max_examples=100, deadline=None)
@given(_texts)
def test_id_refuses_white_space_and_control_characters(text):
    bad = [
        each
        for each in text
        if each.isspace() or unicodedata.category(each) in ("Cc", "Cs") or each == "\ufeff"
    ]
    assert is_usable(text) == (text != "" and not bad)
    if not is_usable(text):
        with pytest.raises(RowError, match=rf"U\+{ord(bad[0]):04X}|surrogate" if bad else "empty"):
            check_id(text)


@given(st.lists(_texts, max_size=4))
def test_ids_are_usable_if_each_is(texts):
    assert are_usable(texts) == all(map(is_usable, texts))


@pytest.mark.parametrize("text", GOOD_IDS)
def test_id_accepts_other_characters(text):
    check_id(text)
    check_query_id(text)


def test_query_id_refuses_a_leading_hash():
    check_query_id("q#1")
    check_id("#1")
    with pytest.raises(RowError) as caught:
        check_query_id("#1")
    assert caught.value.kind == "comment-id"


def test_id_error_shortens_a_long_id():
    with pytest.raises(RowError) as caught:
        check_id("x" * 10**6 + " ")
    assert len(str(caught.value)) < 200


@settings(max_examples=50, deadline=None)
@given(
    query_id=_ids.filter(lambda text: not text.startswith("#")),
    doc_ids=st.lists(_ids, min_size=1, unique=True),
)
def test_id_is_the_same_in_every_reader(tmp_path_factory, query_id, doc_ids):
    folder = tmp_path_factory.mktemp("ids")
    for run_format in ("trec", "msmarco"):
        write_run(
            str(folder / run_format),
            {query_id: [(doc_id, 0.0) for doc_id in doc_ids]},
            "t",
            run_format,
        )
        assert read_run(str(folder / run_format)).order == {query_id: doc_ids}
    with open(folder / "trec", encoding="utf-8", newline="\n") as file:
        assert {one: list(docs) for one, docs in pytrec_eval.parse_run(file).items()} == {
            query_id: doc_ids
        }
    (folder / "qrels").write_bytes(
        "".join(f"{query_id} 0 {doc_id} 1\n" for doc_id in doc_ids).encode()
    )
    assert read_qrels(str(folder / "qrels")).relevance == {query_id: dict.fromkeys(doc_ids, 1)}
    (folder / "t.tsv").write_bytes(f"{query_id}\tx\n".encode())
    assert list(read_topics(TopicsConfig(path=str(folder / "t.tsv"), format="tsv"))) == [
        (query_id, "x")
    ]
    (folder / "c.tsv").write_bytes("".join(f"{doc_id}\tx\n" for doc_id in doc_ids).encode())
    (unit,) = list_units(CorpusConfig(path=str(folder / "c.tsv"), format="tsv"))
    assert [doc_id for batch in read_unit(unit) for doc_id in batch.doc_ids] == doc_ids


@pytest.mark.parametrize("bad", [each for each in BAD_CHARACTERS if each not in " \t\n\x0b\x0c\r"])
def test_bad_id_in_runs_and_qrels_is_an_error(tmp_path, bad):
    """The rest of white space ends a column there, as it does for trec_eval."""
    for name, row in (
        ("run", "q Q0 {} 1 1 t\n"),
        ("run", "{} Q0 d 1 1 t\n"),
        ("qrels", "q 0 {} 1\n"),
        ("qrels", "{} 0 d 1\n"),
    ):
        (tmp_path / name).write_bytes(
            f"q Q0 z 1 1 t\n{row.format(f'a{bad}')}".encode()[0 if name == "run" else 13 :]
        )
        with pytest.raises(PreflightError, match=rf"U\+{ord(bad):04X}"):
            (read_run if name == "run" else read_qrels)(str(tmp_path / name))

"""WebAP in the format of gov2.query.json and grade.trectext_patched."""

import json
from pathlib import Path

import numpy as np
import pytest

from beamrank.errors import PreflightError
from contrib.papers.webap import read_webap

_XML = """<?xml version="1.0" encoding="UTF-8"?>
<ROOT>
<DOC>
<DOCNO>GX268-35-11839875-701</DOCNO>
<TARGET_QID>701</TARGET_QID>
<ORIGINAL_DOCNO>GX268-35-11839875</ORIGINAL_DOCNO>
<TEXT>
<NONE>
<SENTENCE>one two</SENTENCE><SENTENCE>three &amp; four</SENTENCE>
</NONE>
<PERFECT>
<SENTENCE>the history</SENTENCE>
<SENTENCE>of oil</SENTENCE>
</PERFECT>
<FAIR><SENTENCE>oil prices</SENTENCE></FAIR>
<NONE><SENTENCE> </SENTENCE></NONE>
</TEXT>
</DOC>
<DOC>
<DOCNO>GX000-00-00000000-715</DOCNO>
<TARGET_QID>715</TARGET_QID>
<ORIGINAL_DOCNO>GX000-00-00000000</ORIGINAL_DOCNO>
<TEXT>
<NONE>
<SENTENCE>nothing relevant</SENTENCE>
</NONE>
</TEXT>
</DOC>
</ROOT>
"""
_QUERIES = {"701": "Describe the history of the U.S. oil industry", "715": "Who has sued?"}


def _save(folder: Path, xml: str = _XML, queries: dict[str, str] = _QUERIES) -> Path:
    graded = folder / "gradedText"
    graded.mkdir(exist_ok=True)
    rows = [{"number": number, "text": text} for number, text in queries.items()]
    (graded / "gov2.query.json").write_text(json.dumps({"queries": rows}, indent=1))
    (graded / "grade.trectext_patched").write_text(xml, encoding="utf-8")
    return folder


def _document(query_id: str, spans: str, number: int = 0) -> str:
    docno = f"GX{number:03}-{query_id}"
    head = (
        f"<DOCNO>{docno}</DOCNO><TARGET_QID>{query_id}</TARGET_QID>"
        f"<ORIGINAL_DOCNO>GX{number:03}</ORIGINAL_DOCNO>"
    )
    return f"<DOC>{head}<TEXT>{spans}</TEXT></DOC>"


def _span(grade: str, words: int) -> str:
    return f"<{grade}><SENTENCE>{' '.join(f'w{n}' for n in range(words))}</SENTENCE></{grade}>"


def test_webap_takes_relevant_spans_and_divides_the_rest(tmp_path):
    collection = read_webap(str(_save(tmp_path)))
    docs = {doc.doc_id: doc.text for doc in collection.docs}
    (part,) = collection.parts
    assert [(topic.query_id, topic.text) for topic in part.topics] == [("701", _QUERIES["701"])]
    assert part.relevance == {"701": {"GX268-35-11839875-701-1": 4, "GX268-35-11839875-701-2": 1}}
    assert docs["GX268-35-11839875-701-1"] == "the history of oil"
    assert docs["GX268-35-11839875-701-2"] == "oil prices"
    others = [
        text for doc_id, text in docs.items() if doc_id.startswith("GX268-35-11839875-701-0.")
    ]
    assert " ".join(others) == "one two three & four"
    # The text of a query without a relevant span stays in the corpus.
    assert (
        " ".join(text for doc_id, text in docs.items() if doc_id.startswith("GX000"))
        == "nothing relevant"
    )
    assert collection.left_out == {"queries without a relevant span": 1, "spans without words": 1}


def test_webap_draws_lengths_from_those_of_the_relevant_spans(tmp_path):
    spans = "".join(_span("GOOD", words) for words in (40, 50, 60)) + _span("NONE", 100_000)
    folder = str(_save(tmp_path, f"<ROOT>{_document('701', spans)}</ROOT>"))
    docs = list(read_webap(folder, seed=1).docs)
    pieces = [doc.text.split() for doc in docs if "." in doc.doc_id]
    lengths = [len(piece) for piece in pieces[:-1]]
    assert [word for piece in pieces for word in piece] == [f"w{n}" for n in range(100_000)]
    assert np.mean(lengths) == pytest.approx(50, abs=1)
    assert np.std(lengths) == pytest.approx(np.std([40, 50, 60]), abs=1)
    assert docs == list(read_webap(folder, seed=1).docs)
    assert docs != list(read_webap(folder, seed=2).docs)


def test_webap_draws_again_below_one_word(tmp_path):
    spans = _span("GOOD", 1) + _span("GOOD", 30) + _span("NONE", 2000)
    docs = list(read_webap(str(_save(tmp_path, f"<ROOT>{_document('701', spans)}</ROOT>"))).docs)
    assert min(len(doc.text.split()) for doc in docs) >= 1
    assert sum(len(doc.text.split()) for doc in docs if "." in doc.doc_id) == 2000


def test_webap_keeps_80_of_82_queries(tmp_path):
    queries = {str(number): f"query {number}" for number in range(701, 783)}
    graded = [
        _document(query_id, _span("NONE" if query_id in ("715", "752") else "EXCEL", 5), number)
        for number, query_id in enumerate(queries)
    ]
    collection = read_webap(str(_save(tmp_path, f"<ROOT>{''.join(graded)}</ROOT>", queries)))
    assert len(collection.parts[0].topics) == 80
    assert collection.left_out["queries without a relevant span"] == 2


def test_webap_counts_documents_of_other_queries(tmp_path):
    xml = f"<ROOT>{_document('701', _span('GOOD', 3))}{_document('999', _span('GOOD', 3))}</ROOT>"
    collection = read_webap(str(_save(tmp_path, xml)))
    assert len(list(collection.docs)) == 1
    assert collection.left_out["documents of queries that are not in gov2.query.json"] == 1


_BOMB = "".join(
    f'<!ENTITY {new} "{f"&{old};" * 30}">' for old, new in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<FAIR><SENTENCE>oil prices</SENTENCE></FAIR>", "<POOR/>", "'POOR' .*'GX268-35"),
        ("GX000-00-00000000-715", "GX268-35-11839875-701", "'GX268-35-11839875-701'"),
        ("<TARGET_QID>715</TARGET_QID>", "", "'GX000-00-00000000-715'"),
        ("<DOCNO>GX000-00-00000000-715</DOCNO>", "", "'715'"),
        ("</DOC>\n</ROOT>", "", ", line 29: "),
        ("three &amp; four", "three & four", ", line 9: "),
        ("<ROOT>", f'<!DOCTYPE r [<!ENTITY a "{"x" * 999}">{_BOMB}]><ROOT>&g;', "XML .*limit"),
    ],
)
def test_webap_refuses_a_document_by_its_place(tmp_path, old, new, message):
    assert old in _XML
    with pytest.raises(PreflightError, match=rf"gradedText/grade\.trectext_patched.*{message}"):
        read_webap(str(_save(tmp_path, _XML.replace(old, new, 1))))


def test_webap_refuses_every_truncated_file(tmp_path):
    _save(tmp_path)
    for size in range(0, len(_XML.strip()), 5):
        (tmp_path / "gradedText/grade.trectext_patched").write_text(_XML[:size], encoding="utf-8")
        with pytest.raises(PreflightError, match=r"grade.trectext_patched, line \d+: "):
            read_webap(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", " cannot be used: "),
        ('{"queries": [{"number": "701"}]}', " cannot be used: queries.0.text: "),
        (
            '{"queries": [{"number": "701", "text": "a"},\n{"number": "701", "text": "b"}]}',
            ", query 2: the id",
        ),
        ('{"queries": [\n{"number"', ", line 2: .*JSON"),
    ],
)
def test_webap_refuses_queries_by_their_place(tmp_path, content, message):
    _save(tmp_path)
    (tmp_path / "gradedText/gov2.query.json").write_text(content)
    with pytest.raises(PreflightError, match=f"gov2.query.json{message}"):
        read_webap(str(tmp_path))

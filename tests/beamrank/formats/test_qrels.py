"""Reading qrels: formats, what is noticed and what is refused."""

import hashlib
import json
import re
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.files import hash_files
from beamrank.formats.qrels import read_qrels


def _write(folder, text):
    path = folder / "some.qrels"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def _problems(folder, text):
    path = _write(folder, text)
    with pytest.raises(PreflightError, match=re.escape(path)) as caught:
        read_qrels(path)
    return str(caught.value)


@pytest.mark.parametrize("separator", [" ", "\t", "  \t"])
def test_qrels_have_four_columns(tmp_path, separator):
    rows = ["301 0 FT-1 0", "301 0 FT-2 2", "302 Q0 FT-1 -1"]
    qrels = read_qrels(
        _write(tmp_path, "".join(f"{row.replace(' ', separator)}\n" for row in rows))
    )
    assert qrels.relevance == {"301": {"FT-1": 0, "FT-2": 2}, "302": {"FT-1": -1}}
    assert (qrels.notes.format, qrels.notes.topics, qrels.notes.judgments) == ("trec", 2, 3)
    assert qrels.notes.lines() == []


def test_beir_qrels_have_three_columns_below_a_header(tmp_path):
    qrels = read_qrels(
        _write(tmp_path, "query-id\tcorpus-id\tscore\nPLAIN-2\tMED-2427\t2\nPLAIN-2\tMED-10\t1\n")
    )
    assert qrels.relevance == {"PLAIN-2": {"MED-2427": 2, "MED-10": 1}}
    assert qrels.notes.format == "header"


@pytest.mark.parametrize(
    "header",
    ["query-id\tdoc-id\tscore", "qid docid label", "Query_ID PID Rel", "query_id doc_id relevance"],
)
def test_qrels_of_three_columns_are_read_with_and_without_a_header(tmp_path, header):
    rows = "q 7 2\nq 8 0\nr 7 1\n"
    rows = rows.replace(" ", "\t") if "\t" in header else rows
    for text in (rows, f"{header}\n{rows}"):
        assert read_qrels(_write(tmp_path, text)).relevance == {
            "q": {"7": 2, "8": 0},
            "r": {"7": 1},
        }


def test_columns_of_qrels_are_found_by_their_names(tmp_path):
    text = "label docno iteration topic\n1 a 0 q\n0 b 0 q\n"
    assert read_qrels(_write(tmp_path, text)).relevance == {"q": {"a": 1, "b": 0}}


def test_qrels_are_read_from_jsonl_and_parquet(tmp_path):
    rows = [
        {"query-id": "q", "corpus-id": "a", "score": 1},
        {"score": 0, "corpus-id": "b", "query-id": "q"},
    ]
    jsonl = tmp_path / "test.jsonl"
    jsonl.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert read_qrels(str(jsonl)).relevance == {"q": {"a": 1, "b": 0}}
    parquet = tmp_path / "test.parquet"
    for scores in ([1, 0], [1.0, 0.0]):
        table = pa.table({"query-id": ["q", "q"], "corpus-id": ["a", "b"], "score": scores})
        pq.write_table(table, parquet, row_group_size=1)
        assert read_qrels(str(parquet)).relevance == {"q": {"a": 1, "b": 0}}
    damaged = pa.array([b"a", b"\xff"]).view(pa.string())
    pq.write_table(
        pa.table({"query-id": ["q", "q"], "corpus-id": damaged, "score": [1, 0]}), parquet
    )
    with pytest.raises(PreflightError, match=r"row 2: .* UTF-8") as caught:
        read_qrels(str(parquet))
    assert (caught.value.kind, caught.value.place) == ("not-utf8", 2)
    parquet.write_bytes(parquet.read_bytes()[:-8])
    with pytest.raises(PreflightError, match=r"test\.parquet is not a Parquet file"):
        read_qrels(str(parquet))
    with pytest.raises(PreflightError, match=r"there is no qrels file .*none\.parquet"):
        read_qrels(str(tmp_path / "none.parquet"))


def test_qrels_comments_and_blank_lines_are_skipped(tmp_path):
    qrels = read_qrels(_write(tmp_path, "# here\nq 0 CR#93E 1\n\n  # and here\nq 0 b 0\n"))
    assert qrels.relevance == {"q": {"CR#93E": 1, "b": 0}}
    assert qrels.notes.comments == 2


def test_duplicate_judgments_must_agree(tmp_path):
    qrels = read_qrels(_write(tmp_path, "q 0 a 1\nq 0 b 0\nq 0 a 1\n"))
    assert (qrels.notes.judgments, qrels.notes.repeated) == (2, 1)
    assert "duplicate judgments, with equal relevance: 1;" in qrels.notes.lines()[0]
    message = _problems(tmp_path, "q 0 a 1\nq 0 b 0\nq 0 a 2\n")
    assert (
        "line 3: the row gives doc 'a' of query 'q' the relevance 2, but line 1 gives 1" in message
    )


def test_qrels_are_read_from_several_files_and_globs(tmp_path):
    for name, text in {
        "fold-0": "q 0 a 1\nq 0 b 0\n",
        "fold-1": "q 0 b 0\nr 0 a 1\n",
        "other": "q 0 a 2\n",
    }.items():
        (tmp_path / name).write_text(text)
    qrels = read_qrels(f"{tmp_path}/fold-*")
    assert qrels.relevance == {"q": {"a": 1, "b": 0}, "r": {"a": 1}}
    assert (qrels.notes.topics, qrels.notes.judgments, qrels.notes.repeated) == (2, 3, 1)
    with pytest.raises(
        PreflightError,
        match=r"other is not .*\n  line 1: .* the relevance 2, but an earlier file gives 1",
    ):
        read_qrels([f"{tmp_path}/fold-0", f"{tmp_path}/other"])
    with pytest.raises(PreflightError, match=r"there is no qrels file .*/none\*"):
        read_qrels(f"{tmp_path}/none*")


_RECORD = '{"query-id": "q", "corpus-id": "a", "score": 1}\n'


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("q 0 a 1\nq 0 b\n", "columns", 2),
        ("q 1\n", "columns", 1),
        ("q a 1\nq 0 b 1\n", "columns", 2),
        ("docid qid rel\na q 1\nb q\n", "columns", 3),
        ("".join(f"q d{i} {i}\n" for i in range(1, 11)), "run-as-qrels", None),
        (_RECORD + '{"query-id": "q"}\n', "null", 2),
        (_RECORD + "{]\n", "not-json", 2),
        (_RECORD.replace('"a"', '"a b"'), "id-white-space", 1),
        (_RECORD.replace('"a"', "null"), "null", 1),
        (_RECORD.replace("1}", "0.5}"), "number-fraction", 1),
        (_RECORD.encode() + b'{"query-id": "\xff"}', "not-utf8", 2),
        ("q Q0 a 1 2.5 tag\n", "columns", 1),
        ("q 0 a 1.5\n", "number-fraction", 1),
        ("q 0 a 1_0\n", "number", 1),
        ("query-id\tcorpus-id\tscore\nq 0 a 1\n", "columns", 2),
        ("q 0 a 1 q 0 b 1\n", "columns", 1),
        ("q 0 a 1\rq 0 b 1\r", "lone-cr", 1),
        ("q 0 a 1\nq 0 b\0 1\n", "id-control", 2),
        ("q\u3000x 0 b 1\n", "id-white-space", 1),
        (b"q 0 a\xff 1\n", "not-utf8", 1),
        *[(f"q 0 b {level}\n", "number-range", 1) for level in (10_001, -10_001, 10**30)],
        ("", "no-rows", None),
        ("query-id\tcorpus-id\tscore\n", "no-rows", None),
    ],
)
def test_qrels_error_names_the_row(tmp_path, text, kind, place):
    path = _write(tmp_path, text)
    with pytest.raises(PreflightError) as caught:
        read_qrels(path)
    assert (caught.value.file, caught.value.kind, caught.value.place) == (path, kind, place)


def test_qrels_keep_graded_and_negative_relevance(tmp_path):
    levels = [0, 1, 4, 127, 1000, 10_000, -1, -2, -10_000]
    qrels = read_qrels(
        _write(tmp_path, "".join(f"q 0 d{i} {level}\n" for i, level in enumerate(levels)))
    )
    assert list(qrels.relevance["q"].values()) == levels


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "topics", "judgments", "comments"),
    [
        ("trec_eval/qrels.test", 3, 3681, 0),
        ("trec_eval/qrels.test.with-comments", 3, 3681, 3),
        ("msmarco/ans_small/qrels.dev.small.tsv", 105, 114, 0),
        ("cacm/qrels.cacm.txt", 52, 796, 0),
    ],
)
def test_real_qrels(shared_data, name, topics, judgments, comments):
    notes = read_qrels(str(shared_data / name)).notes
    assert (notes.topics, notes.judgments, notes.comments) == (topics, judgments, comments)


@pytest.mark.data
def test_qrels_of_several_assessors_are_refused(shared_data):
    with pytest.raises(
        PreflightError, match="doc 'CR93E-1860' of query '301' the relevance 3, but line 6 gives 0"
    ):
        read_qrels(str(shared_data / "trec_eval/qrels.comments.123"))


@pytest.mark.data
def test_real_beir_qrels(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data / "nfcorpus/nfcorpus.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("qrels/test.tsv"))
        path = archive.extract(name, tmp_path)
    notes = read_qrels(path).notes
    assert (notes.format, notes.topics) == ("header", 323)


def test_a_folder_of_qrels_has_the_digests_of_its_files(tmp_path):
    (tmp_path / "a.qrels").write_text("q1 0 d1 1\n")
    (tmp_path / "README.md").write_text("words")
    digests = hash_files(str(tmp_path))
    assert digests == {f"{tmp_path}/a.qrels": hashlib.sha256(b"q1 0 d1 1\n").hexdigest()}

"""Reading qrels: formats, what is noticed and what is refused."""

import hashlib
import zipfile

import pytest

from beamrank.errors import PreflightError
from beamrank.formats.files import hash_files
from beamrank.formats.qrels import read_qrels
from tests.support.refusals import refuses


def _write(folder, text):
    path = folder / "some.qrels"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize("separator", [" ", "\t", "  \t"])
def test_qrels_have_four_columns(tmp_path, separator):
    rows = ["301 0 FT-1 0", "301 0 FT-2 2", "302 Q0 FT-1 -1"]
    qrels = read_qrels(
        _write(tmp_path, "".join(f"{row.replace(' ', separator)}\n" for row in rows))
    )
    assert qrels.relevance == {"301": {"FT-1": 0, "FT-2": 2}, "302": {"FT-1": -1}}
    assert (qrels.notes.format, qrels.notes.topics, qrels.notes.judgments) == ("trec", 2, 3)
    assert qrels.notes.lines() == []


def test_qrels_comments_and_blank_lines_are_skipped(tmp_path):
    qrels = read_qrels(_write(tmp_path, "# here\nq 0 CR#93E 1\n\n  # and here\nq 0 b 0\n"))
    assert qrels.relevance == {"q": {"CR#93E": 1, "b": 0}}
    assert qrels.notes.comments == 2


def test_duplicate_judgments_are_counted(tmp_path):
    qrels = read_qrels(_write(tmp_path, "q 0 a 1\nq 0 b 0\nq 0 a 1\n"))
    assert (qrels.notes.judgments, qrels.notes.repeated) == (2, 1)
    assert ": 1;" in qrels.notes.lines()[0]


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
    with refuses(PreflightError, "judged-twice", 1):
        read_qrels([f"{tmp_path}/fold-0", f"{tmp_path}/other"])
    with refuses(PreflightError, "no-file"):
        read_qrels(f"{tmp_path}/none*")


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("q 1\n", "columns", 1),
        ("q a 1\nq 0 b 1\n", "columns", 2),
        ("".join(f"q d{i} {i}\n" for i in range(1, 11)), "run-as-qrels", None),
        ("q Q0 a 1 2.5 tag\n", "columns", 1),
        ("q 0 a 1 q 0 b 1\n", "columns", 1),
        *[(f"q 0 b {level}\n", "number-range", 1) for level in (10_001, -10_001, 10**30)],
    ],
)
def test_qrels_error_names_the_row(tmp_path, text, kind, place):
    path = _write(tmp_path, text)
    with refuses(PreflightError, kind, place, path):
        read_qrels(path)


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
    with pytest.raises(PreflightError, match=r"'CR93E-1860' .*'301' .*3, .*line 6 .*0"):
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

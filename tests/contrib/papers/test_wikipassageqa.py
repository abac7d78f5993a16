"""WikiPassageQA in the format of its TSV files and document_passages.json."""

import json
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from beamrank.records import Doc, Topic
from contrib.papers.questions import read_wikipassageqa

_HEADER = "QID\tQuestion\tDocumentID\tDocumentName\tRelevantPassages\n"
_PASSAGES = {
    "672": {str(n): f"Evangelicalism {n}." for n in (0, 2, 1)},
    "7": {"0": 'The "sea".\nIt is deep.'},
}
_FILES = {
    "train.tsv": f"{_HEADER}3086\tWhat is the role of "
    "conversionism?\t672\tEvangelicalism.html\t0,2\n12\tWhat is "
    "\u201clife\u201d?\t7\tSea.html\t0\n",
    "dev.tsv": f"{_HEADER}1\tHow deep?\t7\tSea.html\t0\n",
    "test.tsv": f"{_HEADER}2\tWho?\t672\tEvangelicalism.html\t1\n",
}


def _save(folder: Path, **changed: str) -> Path:
    (folder / "document_passages.json").write_text(json.dumps(_PASSAGES), encoding="utf-8")
    for name, text in _FILES.items():
        (folder / name).write_text(changed.get(name.removesuffix(".tsv"), text), encoding="utf-8")
    return folder


def test_wikipassageqa_candidates_are_the_passages_of_the_article(tmp_path):
    collection = read_wikipassageqa(str(_save(tmp_path)))
    train, dev, test = collection.parts
    assert [part.name for part in collection.parts] == ["train", "dev", "test"]
    assert train.topics == [
        Topic("3086", "What is the role of conversionism?"),
        Topic("12", "What is \u201clife\u201d?"),
    ]
    assert train.relevance == {"3086": {"672-0": 1, "672-2": 1}, "12": {"7-0": 1}}
    assert train.candidates == {"3086": ["672-0", "672-1", "672-2"], "12": ["7-0"]}
    assert (dev.candidates, test.candidates) == ({"1": ["7-0"]}, {"2": ["672-0", "672-1", "672-2"]})
    assert list(collection.docs)[2:] == [
        Doc("672-2", "Evangelicalism 2."),
        Doc("7-0", 'The "sea".\nIt is deep.'),
    ]


def test_wikipassageqa_keeps_every_question_of_each_part(tmp_path):
    sizes = {"train": 3332, "dev": 417, "test": 416}
    rows = {
        name: "".join(f"{name}{n}\tq\t7\tSea.html\t0\n" for n in range(size))
        for name, size in sizes.items()
    }
    collection = read_wikipassageqa(
        str(_save(tmp_path, **{name: _HEADER + text for name, text in rows.items()}))
    )
    assert {part.name: len(part.topics) for part in collection.parts} == sizes


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("dev", "QID\tQuestion\n", 1, "QID Question DocumentID"),
        ("dev", "", 1, "QID Question DocumentID"),
        ("dev", f"{_HEADER}1\tHow deep?\t7\tSea.html", 2, "4 columns"),
        ("dev", f"{_HEADER}12\tHow?\t7\tSea.html\t0\n", 2, "'12'"),
        ("test", f"{_HEADER}2\tWho?\t8\tSky.html\t0\n", 2, "article '8'"),
        ("test", f"{_HEADER}2\tWho?\t7\tSea.html\t0,5\n", 2, "'7-5'"),
        ("test", f"{_HEADER}2\tWho?\t7\tSea.html\t\n", 2, "'7-'"),
        ("test", f"{_HEADER}\tWho?\t7\tSea.html\t0\n", 2, " id"),
    ],
)
def test_wikipassageqa_refuses_a_row_by_its_line(tmp_path, name, text, line, message):
    with pytest.raises(PreflightError, match=rf"{name}\.tsv, line {line}: .*{message}"):
        read_wikipassageqa(str(_save(tmp_path, **{name: text})))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"1": {"0": "a"}, "1": {"0": "b"}}',
            " .*JSON .*'1'",
        ),
        ('{"1": {"0": "a"},\n"2": ["b"]}', " .*: 2: "),
        ('{"1": {"a": "b"}}', ", article '1': "),
        ('{"1":\n{"0": "a"', ", line 2: .*JSON"),
        ('{"1": {"0": "a"}} x', ", line 1: .*JSON"),
    ],
)
def test_wikipassageqa_refuses_articles_by_their_place(tmp_path, text, message):
    _save(tmp_path)
    (tmp_path / "document_passages.json").write_text(text)
    with pytest.raises(PreflightError, match=f"document_passages.json{message}"):
        read_wikipassageqa(str(tmp_path))


def test_wikipassageqa_refuses_every_truncated_file_of_passages(tmp_path):
    whole = json.dumps(_PASSAGES)
    _save(tmp_path)
    for size in range(len(whole)):
        (tmp_path / "document_passages.json").write_text(whole[:size])
        with pytest.raises(PreflightError, match=r"document_passages.json, line \d+: "):
            read_wikipassageqa(str(tmp_path))


def test_wikipassageqa_reports_a_missing_file(tmp_path):
    (_save(tmp_path) / "test.tsv").unlink()
    with pytest.raises(PreflightError, match=r"test.tsv"):
        read_wikipassageqa(str(tmp_path))

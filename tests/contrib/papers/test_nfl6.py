"""nfL6 in the format of nfL6.json."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from beamrank.errors import PreflightError
from beamrank.records import Doc, Topic
from contrib.papers.questions import read_nfl6
from tests.support.refusals import refuses


def _row(query_id: str, question: str, answer: str) -> dict[str, Any]:
    others = [answer, f"not {answer}"]
    return {
        "main_category": "Food",
        "question": question,
        "nbestanswers": others,
        "answer": answer,
        "id": query_id,
    }


_ROWS = [
    _row(
        "2020338", "Why did the US\n invade?", "A small group \u201cof hawks\u201d.\nIt was simple."
    ),
    _row("1195064", "How do you cook a rib roast?", "Slowly."),
]


def _text(rows: list[dict[str, Any]]) -> str:
    """One object a line."""
    return "[" + ",\n".join(json.dumps(row) for row in rows) + "]\n"


def _refusal(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PreflightError) as error:
        read_nfl6(str(path))
    return str(error.value)


@pytest.mark.parametrize("name", ["nfL6.json", "nfL6.json.gz"])
def test_nfl6_has_one_answer_a_question(tmp_path, name):
    content = _text(_ROWS).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    collection = read_nfl6(str(tmp_path / name))
    (part,) = collection.parts
    assert part.topics == [
        Topic("2020338", "Why did the US invade?"),
        Topic("1195064", "How do you cook a rib roast?"),
    ]
    assert list(collection.docs) == [
        Doc("2020338", "A small group \u201cof hawks\u201d.\nIt was simple."),
        Doc("1195064", "Slowly."),
    ]
    assert part.relevance == {"2020338": {"2020338": 1}, "1195064": {"1195064": 1}}
    assert not part.candidates
    assert not collection.left_out


def test_nfl6_counts_questions_without_a_text(tmp_path):
    (tmp_path / "nfL6.json").write_text(
        _text([*_ROWS, _row("3", " \n", "b"), _row("4", "c", "\t")])
    )
    collection = read_nfl6(str(tmp_path / "nfL6.json"))
    assert collection.left_out == {"questions without a text or an answer": 2}
    assert len(collection.parts[0].topics) == 2


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ([*_ROWS, _ROWS[0]], "question 3: the id '2020338'"),
        ([_ROWS[0], {"id": "1", "question": "a"}], "1.answer"),
        ([_ROWS[0], _ROWS[1] | {"id": 7}], "1.id"),
        ([_ROWS[0], _ROWS[1] | {"id": "a b"}], "question 2: "),
        ([_ROWS[0], ["a"]], " 1: "),
    ],
)
def test_nfl6_refuses_a_row_by_its_number(tmp_path, rows, place):
    path = tmp_path / "nfL6.json"
    message = _refusal(path, _text(rows))
    assert message.startswith(str(path))
    assert place in message


def test_nfl6_refuses_every_truncated_file(tmp_path):
    whole = _text(_ROWS).strip().encode()
    for size in range(len(whole)):
        assert f"{tmp_path / 'nfL6.json'}, line " in _refusal(tmp_path / "nfL6.json", whole[:size])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"questions": []}', "must be a list"),
        (_text(_ROWS).encode("utf-16"), ", line 1: not valid UTF-8"),
        (_text(_ROWS[:1]).encode() + b"\n\xe9", ", line 3: not valid UTF-8"),
        (
            '[\n{"id": "1",\n "question": "a", "id": "2"}]',
            "({'id': '2'",
        ),
        ("[" * 100_000, "is not JSON that can be read"),
    ],
)
def test_nfl6_refuses_other_files(tmp_path, content, message):
    assert message in _refusal(tmp_path / "nfL6.json", content)


def test_nfl6_reports_a_missing_file(tmp_path):
    with refuses(PreflightError, "no-file", file="nfL6.json"):
        read_nfl6(str(tmp_path / "nfL6.json"))

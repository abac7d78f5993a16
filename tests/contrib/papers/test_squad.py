"""SQuAD's JSON, of both versions."""

import json
from typing import Any

import pytest

from beamrank.errors import PreflightError
from beamrank.records import Doc, Topic
from contrib.papers.squad import read_squad


def _question(query_id: object, question: str, *answers: str, **keys: Any) -> dict[str, Any]:
    spans = [{"text": text, "answer_start": 0} for text in answers]
    return {"id": query_id, "question": question, "answers": spans, **keys}


def _squad(*articles: dict[str, list[dict[str, Any]]], **keys: Any) -> dict[str, Any]:
    """Articles of paragraphs: their questions by their texts."""
    data = [
        {
            "title": f"Title_{number}",
            "paragraphs": [
                {"context": text, "qas": questions} for text, questions in article.items()
            ],
        }
        for number, article in enumerate(articles)
    ]
    return {"version": "1.1", "data": data, **keys}


_ARTICLES: tuple[dict[str, list[dict[str, Any]]], ...] = (
    {
        "Tea is hot.\nMilk is cold.": [
            _question("a1", " What is\nhot? ", "Tea", "Tea"),
            _question(7, "What is cold?", "Milk"),
        ],
        "Bread": [],
    },
    {"Cats purr.": [_question("c1", "Who purrs?", "Cats")]},
)


@pytest.fixture
def read(tmp_path):
    def read(content: Any) -> Any:
        path = tmp_path / "squad.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_squad(str(path))

    return read


def test_paragraph_of_the_answer_is_relevant(read):
    collection = read(_squad(*_ARTICLES))
    (part,) = collection.parts
    assert list(collection.docs) == [
        Doc("1-1", "Tea is hot.\nMilk is cold."),
        Doc("1-2", "Bread"),
        Doc("2-1", "Cats purr."),
    ]
    assert part.topics == [
        Topic("a1", "What is hot?"),
        Topic("7", "What is cold?"),
        Topic("c1", "Who purrs?"),
    ]
    assert part.relevance == {"a1": {"1-1": 1}, "7": {"1-1": 1}, "c1": {"2-1": 1}}


def test_questions_without_an_answer_are_counted(read):
    impossible = _question(
        "x", "Why?", is_impossible=True, plausible_answers=[{"text": "a", "answer_start": 0}]
    )
    others = [_question("y", "How?"), _question("z", " ", "b")]
    collection = read(_squad({"Tea": [impossible, *others, _question("a", "What?", "Tea")]}))
    assert collection.parts[0].relevance == {"a": {"1-1": 1}}
    assert collection.left_out["questions without an answer or a text"] == 3


def test_paragraphs_with_one_text_are_one_doc(read):
    again = {"Bread": [_question("d1", "What is baked?", "Bread")], " ": []}
    collection = read(_squad(*_ARTICLES, again))
    assert [doc.doc_id for doc in collection.docs] == ["1-1", "1-2", "2-1"]
    assert collection.parts[0].relevance["d1"] == {"1-2": 1}
    assert +collection.left_out == {
        "paragraphs with the text of another": 1,
        "paragraphs without a text": 1,
    }


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "data.0.paragraphs.0.context"),
        ({"data": {"paragraphs": []}}, "data"),
        ([], ""),
        (_squad({"a": [{"id": "1"}]}), "data.0.paragraphs.0.qas.0.question"),
        (_squad({"a": [_question("b c", "d", "e")]}), "paragraph 1-1: .*'b c'"),
        (_squad({"a": [_question("b", "d", "e")] * 2}), "paragraph 1-1: .*'b'"),
        (json.dumps(_squad(*_ARTICLES))[:-9], "line 1: .*JSON"),
    ],
)
def test_other_files_are_refused_with_the_place(read, content, place):
    with pytest.raises(PreflightError, match=rf"squad\.json.*{place}"):
        read(content)

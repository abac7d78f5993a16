"""Prompts of windows, and the meaning of answers."""

import pytest

from contrib.listwise.prompt import FIRST, RANK_ZEPHYR, Window, named_places, neutral

_WINDOW = Window("what is {docs}?", ["one two  three\nfour", "see [1] and [ 2 ]; {query}", "x"])


def test_default_prompt_is_the_one_of_rank_zephyr():
    system, user = Window("why?", ["one", "two"]).messages(RANK_ZEPHYR, 300)
    assert system == {
        "role": "system",
        "content": "You are RankLLM, an intelligent assistant that can rank passages based on "
        "their relevancy to the query.",
    }
    assert user["role"] == "user"
    assert user["content"] == (
        "I will provide you with 2 passages, each indicated by a numerical identifier []. Rank the "
        "passages based on their relevance to the search query: why?.\n\n[1] one\n[2] two\n\n"
        "Search Query: why?.\n\nRank the 2 passages above based on their relevance to the search "
        "query. All the passages should be included and listed using identifiers, in descending "
        "order of relevance. The output format should be [] > [], e.g., [4] > [2]. Only respond "
        "with the ranking results, do not say any word or explain."
    )
    assert "an alphabetical identifier []" in FIRST
    assert "[D] > [B]" in FIRST


def test_places_are_replaced_literally_and_docs_are_cut():
    (message,) = _WINDOW.messages("{query} {num} {other} {{num}}\n{docs}", 3)
    assert message == {
        "role": "user",
        "content": "what is {docs}? 3 {other} {3}\n[1] one two three\n[2] see (1) and\n[3] x",
    }


def test_docs_can_have_letters():
    (message,) = Window("q", ["a [B] b", "c"]).messages("{docs}", 9, "AB")
    assert message["content"] == "[A] a (B) b\n[B] c"


def test_second_try_asks_for_the_form():
    first, second = (_WINDOW.messages("{docs} {query}", 9, again=again) for again in (False, True))
    added = second[0]["content"].removeprefix(first[0]["content"])
    assert "[2] > [1]" in added
    assert "all 3 identifiers" in added


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [1] b", "a (1) b"),
        ("[ 12 ][3]", "(12)(3)"),
        ("[A] [word] [] [1a]", "(A) [word] [] [1a]"),
    ],
)
def test_identifiers_in_docs_are_neutral(text, expected):
    assert neutral(text) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("[3] > [1] > [2]", [2, 0, 1]),
        ("[3]>[3] > [1]", [2, 0]),
        ("3 > 1 > 2", [2, 0, 1]),
        ("[3, 1, 2]", [2, 0, 1]),
        ("Of the 2 best: [ 3 ] > [1]", [2, 0]),
        ("<think>[1] is better than [2]</think>[2] > [1]", [1, 0]),
        ("[4] > [0] > [2]", [1]),
        ("[4] and [00] and 3", []),
        ("I cannot rank them.", []),
        ("", []),
        ("9" * 5000, []),
    ],
)
def test_answers_name_docs(answer, expected):
    assert named_places(answer, 3) == expected

"""The prompt of a window, and what its answer means."""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Messages: TypeAlias = list[dict[str, str]]

SYSTEM_END = "\n---\n"
"""The line that ends the system message of a template, where it has one."""
# The prompt that RankZephyr prints (Pradeep et al. 2023, arXiv:2312.02724, section 3), from
# RankVicuna (arXiv:2309.15088) and RankGPT (Sun et al. 2023, arXiv:2304.09542).
RANK_ZEPHYR = """\
You are RankLLM, an intelligent assistant that can rank passages based on their relevancy to the \
query.
---
I will provide you with {num} passages, each indicated by a numerical identifier []. Rank the \
passages based on their relevance to the search query: {query}.

{docs}

Search Query: {query}.

Rank the {num} passages above based on their relevance to the search query. All the passages \
should be included and listed using identifiers, in descending order of relevance. The output \
format should be [] > [], e.g., [4] > [2]. Only respond with the ranking results, do not say any \
word or explain."""
# With letters, whose first token is all of them, as FIRST has (Reddy et al. 2024,
# arXiv:2406.15657).
FIRST = RANK_ZEPHYR.replace("a numerical", "an alphabetical").replace("[4] > [2]", "[D] > [B]")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NEEDED = ("{docs}", "{query}")
_FORM = "Answer with all {num} identifiers and nothing else, best first, such as [2] > [1]."
_PLACE = re.compile(r"\{(docs|query|num)\}")
# Of docs, as rank_llm does; spaces are tolerated because answers may have them.
_IDENTIFIER = re.compile(r"\[\s*(\d+|[A-Z])\s*\]")
_THOUGHT = "</think>"


class Window(NamedTuple):
    """What a prompt asks about: a query, and the texts of docs in their order."""

    query: str
    docs: Sequence[str]

    def messages(
        self, template: str, doc_words: int, names: str = "", *, again: bool = False
    ) -> Messages:
        """The messages of a prompt, whose named places are replaced literally.

        Args:
            template: has the places `{docs}`, `{query}` and `{num}`.
            doc_words: of each doc at most.
            names: the identifiers of the docs, letters; by default numbers from 1.
            again: a sentence on the form follows, because an earlier answer named no doc.
        """
        shown = names or [str(number) for number in range(1, len(self.docs) + 1)]
        values = {
            "query": neutral(self.query),
            "num": str(len(self.docs)),
            "docs": "\n".join(
                f"[{name}] {neutral(' '.join(text.split()[:doc_words]))}"
                for name, text in zip(shown, self.docs, strict=False)
            ),
        }
        system, _, user = template.rpartition(SYSTEM_END)
        user += f"\n\n{_FORM}" if again else ""
        texts = {"system": system, "user": user}
        return [
            {"role": role, "content": _PLACE.sub(lambda place: values[place[1]], text)}
            for role, text in texts.items()
            if text
        ]


def neutral(text: str) -> str:
    """A text whose words in brackets cannot be taken for identifiers."""
    return _IDENTIFIER.sub(r"(\1)", text)


def named_places(answer: str, count: int) -> list[int]:
    """The places of the docs that an answer names, best first; a thought before it does not count.

    Numbers count only where none is in brackets, and none that is not an identifier.
    """
    last = answer.rpartition(_THOUGHT)[2]
    numbers = re.findall(r"\[\s*(\d+)\s*\]", last) or re.findall(r"\d+", last)
    places = {str(place + 1): place for place in range(count)}
    return [*dict.fromkeys(places[number] for number in numbers if number in places)]

"""A run after earlier ones, of other files and settings, against the same run into an empty
folder.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beamrank.ranking.aggregation import METHODS
from tests.support.checkpoints import LETTERS, save_pair
from tests.support.runs import assert_as_fresh
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

PAIRS = 4


class _State:
    """A collection and its configuration; each change is one of `changes`."""

    def __init__(self, random: np.random.Generator, folder: Path) -> None:
        self.random, self.folder = random, folder
        self.docs, self.topics = dict(DOCS), dict(TOPICS)
        self.candidates = {query_id: list(docs) for query_id, docs in CANDIDATES.items()}
        for name, more in (("first", []), ("second", ["zz"])):
            save_pair(folder / name, [*LETTERS, *more], vocab_size=128)
        self.mono: dict[str, Any] = {"checkpoint": "./first/mono", "k": 6}
        self.duo: dict[str, Any] = {"checkpoint": "./first/duo", "k": 3}
        self.input: dict[str, Any] = {"max_length": 64, "max_query_length": 16}
        self.keys: dict[str, Any] = {"on_missing_doc": "drop"}
        self.changes: Mapping[str, Callable[[], None]] = {
            "edit": lambda: self.docs.update(
                {doc: f"{self.docs[doc]} jetty" for doc in self._some_docs()}
            ),
            "cut": lambda: self.docs.update(
                {doc: self.docs[doc][:40] for doc in self._some_docs()}
            ),
            "swap": self._swap,
            "remove": self._remove,
            "restore": lambda: self.docs.update(DOCS),
            "rename topic": self._rename_topic,
            "edit topic": lambda: self.topics.update({self._topic(): "amber fjord"}),
            "candidates": self._candidates,
            "depths": self._depths,
            "aggregation": self._aggregation,
            "segments": self._segments,
            "shards": lambda: self.keys.update(shards=self._number(1, 6)),
            "limits": lambda: self.input.update(max_length=self._number(3, 5) * 16),
            "truncation": lambda: self.input.update(
                truncation=str(random.choice(["original", "paper"]))
            ),
            "checkpoint": self._checkpoint,
        }

    def change(self) -> list[str]:
        """Makes up to four changes; returns their names."""
        chosen = [
            str(name) for name in self.random.choice(list(self.changes), self.random.integers(0, 5))
        ]
        for name in chosen:
            self.changes[name]()
        return chosen

    def collection(self, **more: Any) -> SmallCollection:
        """Its files as they are now."""
        keys = {"mono": self.mono, "duo": self.duo, "input": self.input, **self.keys, **more}
        collection = SmallCollection(self.folder, self.docs, self.topics, **keys)
        return collection.given_run(self.candidates)

    def _number(self, least: int, end: int) -> int:
        return int(self.random.integers(least, end))

    def _topic(self) -> str:
        return str(self.random.choice(list(self.topics)))

    def _some_docs(self) -> list[str]:
        docs: list[str] = self.random.choice(sorted(self.docs), 4, replace=False).tolist()
        return docs

    def _remove(self) -> None:
        for doc in self._some_docs() if len(self.docs) > 10 else ():
            del self.docs[doc]

    def _swap(self) -> None:
        one, other, *_ = self._some_docs()
        self.docs[one], self.docs[other] = self.docs[other], self.docs[one]

    def _rename_topic(self) -> None:
        old, new = self._topic(), f"q{self.random.integers(20, 99)}"
        self.topics[new], self.candidates[new] = self.topics.pop(old), self.candidates.pop(old)

    def _candidates(self) -> None:
        docs = self.random.choice(sorted(DOCS), self._number(1, 10), replace=False)
        self.candidates[self._topic()] = docs.tolist()

    def _depths(self) -> None:
        self.mono["k"] = self._number(3, 10)
        self.duo["k"] = self._number(2, self.mono["k"] + 1)

    def _aggregation(self) -> None:
        method = str(self.random.choice([*METHODS, "sample", "sample"]))
        self.duo = {"checkpoint": self.duo["checkpoint"], "k": self.duo["k"], "aggregation": method}
        if method == "sample":
            self.duo |= {"opponents": self._number(1, 4), "seed": self._number(0, 3)}

    def _segments(self) -> None:
        length = self._number(10, 41)
        segments = {
            "length_tokens": length,
            "stride_tokens": self._number(5, length + 1),
            "limit": self._number(1, 5),
            "pooling": str(self.random.choice(["max", "first", "mean"])),
        }
        self.mono["segments"] = segments if self.random.random() < 0.7 else None

    def _checkpoint(self) -> None:
        name = self.random.choice(["first", "second"])
        self.mono["checkpoint"], self.duo["checkpoint"] = f"./{name}/mono", f"./{name}/duo"


def check(seed: int, folder: Path) -> int:
    """Four pairs: each run is after the ones before, in their output or with `reuse`; returns the
    scores reused.
    """
    state = _State(np.random.default_rng(seed), folder)
    fresh = [folder / "fresh-0"]
    state.collection().run(output=fresh[0])
    reused = 0
    for number in range(1, PAIRS + 1):
        changes, in_place = state.change(), bool(state.random.random() < 0.5)
        output = folder / "again" if in_place else folder / f"new-{number}"
        named = [] if in_place and number > 1 else [str(output) for output in fresh[-2:]]
        fresh.append(folder / f"fresh-{number}")
        state.collection().run(output=fresh[-1])
        state.collection(reuse=named).run(output=output)
        try:
            reused += assert_as_fresh(output, fresh[-1])
        except AssertionError as error:
            place = f"pair {number}, changes {changes}, in place {in_place}"
            raise AssertionError(f"{place}: {error}") from error
    return reused

"""Random runs after other runs, of changed files and settings, in their output or with `reuse`,
against the same run into an empty folder.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from beamrank.ranking.aggregation import METHODS
from pipelines.plan.estimate import estimate
from tests.contrib.generators.cases import save_generator
from tests.support.checkpoints import LETTERS, save_pair
from tests.support.runs import assert_as_fresh, committed
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

PAIRS = 4
_GENERATOR = {
    "prompt": {"text": "{{ instruction }} {{ query }} {{ doc }} answer"},
    "answers": ["yes", "no"],
    "instruction": "{instruction}",
}

# The settings, the query and the texts behind a score.
_Asked: TypeAlias = tuple[Any, ...]
# Of the parts of a run, by stage and name.
_Parts: TypeAlias = Mapping[tuple[str, str], set[_Asked]]


class _State:
    """A collection and its configuration; `changes` keep what a score depends on, `settings` do
    not.
    """

    def __init__(self, random: np.random.Generator, folder: Path, *, is_instructed: bool) -> None:
        self.random, self.folder = random, folder
        self.docs, self.topics = dict(DOCS), dict(TOPICS)
        self.candidates = {query_id: list(docs) for query_id, docs in CANDIDATES.items()}
        # Matrices of duo have different sizes.
        self.candidates[next(iter(TOPICS))] = [*DOCS][:2]
        self.instructions = dict.fromkeys(TOPICS, "find")
        for name, more in (("first", []), ("second", ["zz"])):
            save_pair(folder / name, [*LETTERS, *more], vocab_size=128)
        save_generator(folder / "generator", "Qwen3")
        self.mono: dict[str, Any] = {"checkpoint": "./first/mono", "k": 6}
        self.large: dict[str, Any] = {}
        self.deeper: dict[str, Any] = {}
        self.duo: dict[str, Any] = {"checkpoint": "./first/duo", "k": 3}
        self.input: dict[str, Any] = {"max_length": 64, "max_query_length": 16}
        self.keys: dict[str, Any] = {"on_missing_doc": "drop"}
        if is_instructed:
            self.mono |= {"checkpoint": "./generator", **_GENERATOR}
            self._segments()
        else:
            self._deeper()
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
            "instruct": lambda: self.instructions.update({self._topic(): "judge"}),
            "candidates": self._candidates,
            "depths": self._depths,
            "deeper": self._deeper,
            "second mono": self._large,
            "aggregation": self._aggregation,
            "segments": self._segments,
            "stride": self._stride,
            "shards": lambda: self.keys.update(shards=self._number(1, 6)),
            "combine": self._combine,
        }
        self.settings: Mapping[str, Callable[[], None]] = {
            "length": lambda: self.input.update(max_length=80),
            "truncation": lambda: self.input.update(truncation="paper"),
            "dtype": lambda: self.keys.update(dtype="bfloat16"),
            "checkpoint": self._checkpoint,
        }

    def change(self, names: Sequence[str]) -> None:
        """Makes some changes."""
        for name in names:
            {**self.changes, **self.settings}[name]()

    def deal(self) -> list[list[str]]:
        """All changes, some for each pair; the last pair has one of the settings."""
        parts = np.array_split(self.random.permutation(list(self.changes)), PAIRS - 1)
        return [part.tolist() for part in parts] + [[str(self.random.choice([*self.settings]))]]

    def collection(self, **more: Any) -> SmallCollection:
        """Its files as they are now."""
        # `deeper` takes no combined scores.
        cascade = [{"mono": self.mono | ({"combine": None} if self.deeper else {})}]
        cascade += [{"deeper": {"name": "deeper", **self.deeper}}] if self.deeper else []
        cascade += [{"mono": {"name": "large", **self.large}}] if self.large else []
        keys = {"cascade": [*cascade, {"duo": self.duo}], "input": self.input, **self.keys, **more}
        collection = SmallCollection(self.folder, self.docs, self.topics, **keys)
        collection.keys["topics"] = {"path": "topics.jsonl", "format": "jsonl"}
        rows = (
            {"id": query_id, "text": text, "instruction": self.instructions[query_id]}
            for query_id, text in self.topics.items()
        )
        collection.write("topics.jsonl", map(json.dumps, rows))
        collection.with_qrels({query_id: docs[0] for query_id, docs in self.candidates.items()})
        return collection.given_run(self.candidates)

    def asked(self, output: Path) -> _Parts:
        """What each part of a stage with a model answers, by the texts."""
        return {
            (name, path.name): set(self._asked_of(section, path))
            for name, section in (
                ("mono", self.mono),
                ("deeper", self.mono),
                ("large", self.large),
                ("duo", self.duo),
            )
            for path in (output / name).glob("part-*")
        }

    def _asked_of(self, section: Mapping[str, Any], path: Path) -> Iterator[_Asked]:
        instructed = "instruction" in section
        settings = section["checkpoint"], *self.input.items(), self.keys.get("dtype")
        segments = section.get("segments") or {"stride_tokens": 0, "length_tokens": 0}
        for row in pq.read_table(path).to_pylist():
            query_id = row["query_id"]
            query = query_id, self.topics[query_id], instructed and self.instructions[query_id]
            if "scores" in row:
                texts = [self.docs[doc_id] for doc_id in row["doc_ids"]]
                for docs, score in zip(product(texts, texts), row["scores"], strict=True):
                    if np.isfinite(score):
                        yield *settings, query, docs
            else:
                start = row["segment"] * segments["stride_tokens"]
                text = self.docs[row["doc_id"]]
                yield *settings, query, text, start, segments["length_tokens"]

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
        columns: tuple[dict[str, Any], ...] = (self.topics, self.candidates, self.instructions)
        for values in columns:
            values[new] = values.pop(old)

    def _candidates(self) -> None:
        docs = self.random.choice(sorted(DOCS), self._number(1, 10), replace=False)
        self.candidates[self._topic()] = docs.tolist()

    def _depths(self) -> None:
        self.mono["k"] = self._number(3, 9)
        self.duo["k"] = self._number(2, self.mono["k"] + 1)
        self.large |= {"k": self.duo["k"]} if self.large else {}

    def _deeper(self) -> None:
        self.deeper = {} if self.deeper else {"k": 9, "inferences": self._number(60, 400)}

    def _large(self) -> None:
        # Never mono's: a stage reuses nothing of its own plan.
        self.large = {} if self.large else {"checkpoint": "./second/mono", "k": self.mono["k"]}

    def _aggregation(self) -> None:
        method = str(self.random.choice([*METHODS, "sample", "sample"]))
        self.duo = {"checkpoint": self.duo["checkpoint"], "k": self.duo["k"], "aggregation": method}
        if method == "sample":
            self.duo |= {"opponents": self._number(1, 4), "seed": self._number(0, 3)}

    def _combine(self) -> None:
        method = str(self.random.choice(["minmax", "zscore", "none"]))
        self.mono["combine"] = {"weight": float(self.random.random()), "normalize": method}

    def _segments(self) -> None:
        length = self._number(10, 31)
        segments = {"length_tokens": length, "limit": self._number(2, 5)}
        if self.mono.pop("segments", None) is None:
            self.mono["segments"] = segments
            self._stride()

    def _stride(self) -> None:
        if segments := self.mono.get("segments"):
            self.mono["segments"] = segments | {
                "stride_tokens": self._number(5, segments["length_tokens"] + 1),
                "limit": self._number(2, 5),
                "pooling": str(self.random.choice(["max", "mean"])),
            }

    def _checkpoint(self) -> None:
        for key in _GENERATOR:
            self.mono.pop(key, None)
        self.mono["checkpoint"], self.duo["checkpoint"] = "./second/mono", "./second/duo"
        self.large |= {"checkpoint": "./first/mono"} if self.large else {}


class _Runs:
    """The runs of a state, and what the receipts of their shards answer."""

    def __init__(self, state: _State) -> None:
        self.state = state
        self.outputs: list[Path] = []
        self._answers: dict[Path, set[_Asked]] = {}

    def run(self, output: Path, *named: Path, parts: _Parts | None = None) -> _Parts:
        """Runs into an output, beside what is committed there; no more is scored than no receipt
        answers, or than was planned. Returns its parts, by default read from its files.
        """
        before, known = committed(output), self._known(output, *named)
        planned = self.state.collection(reuse=[str(each) for each in named]).plan(output=output)
        bounds = {each.stage: each.remaining_inferences for each in estimate(planned.config).stages}
        # It may use what mono leaves of a limit of both, more than is planned where topics have
        # few candidates.
        bounds["deeper"] = self.state.deeper.get("inferences", 0)
        planned.run()
        now = committed(output)
        assert {name: now[name] for name in before} == before, "a part is written again"
        parts = parts or self.state.asked(output)
        asked, scored = dict[str, set[_Asked]](), dict[str, int]()
        for receipt in (output / name for name in now.keys() - before if "/receipts/" in name):
            values, stage = json.loads(receipt.read_text()), receipt.parts[-3]
            if (stage, values["part"]) in parts:
                self._answers[receipt] = parts[stage, values["part"]]
                asked[stage] = asked.get(stage, set()) | self._answers[receipt]
                scored[stage] = scored.get(stage, 0) + values["counts"]["inferences"]
        of_mono = set[_Asked]().union(*(parts[place] for place in parts if place[0] == "mono"))
        for stage in asked:
            new = asked[stage] - known - (of_mono if stage == "deeper" else set())
            assert scored[stage] <= len(new), f"{stage} scores what a part answers"
            assert scored[stage] <= bounds[stage], f"{stage} scores more than was planned"
        self.outputs = [*dict.fromkeys([*self.outputs, output])]
        return parts

    def _known(self, *outputs: Path) -> set[_Asked]:
        """What the committed parts of some outputs answer."""
        found: set[_Asked] = set()
        for receipt in self._answers:
            if receipt.parents[2] in outputs and receipt.exists():
                found |= self._answers[receipt]
        return found

    def kill(self, output: Path, since: Set[Path]) -> None:
        """Leaves what a run would have left that was killed at a random moment, given the files
        that were there when it started, manifests of earlier plans among them.
        """
        own = [
            path
            for path in _files(output) - since
            if path.relative_to(output).parts[0] not in ("machines", "logs")
        ]
        # Times may be equal; a receipt is written after its part.
        own.sort(key=lambda path: (path.stat().st_mtime_ns, path.parent.name == "receipts", path))
        for path in own[int(self.state.random.integers(len(own))) :]:
            path.unlink()


def _files(output: Path) -> set[Path]:
    return {path for path in output.glob("*/**/*") if path.is_file()}


def check(seed: int, folder: Path) -> int:
    """Four pairs: each run is after the ones before, in their output or with `reuse`, and some were
    killed; returns the scores reused.
    """
    random = np.random.default_rng(seed)
    state = _State(random, folder, is_instructed=seed % 2 == 0)
    runs, reused, shared = _Runs(state), 0, folder / "again"
    runs.run(folder / "fresh-0")
    for number, changes in enumerate(state.deal(), 1):
        state.change(changes)
        output = shared if random.random() < 0.6 else folder / f"new-{number}"
        places = random.choice(len(runs.outputs), random.integers(3))
        chosen = [runs.outputs[place] for place in places]
        named = [each for each in chosen if each != shared]
        fresh = folder / f"fresh-{number}"
        try:
            parts = runs.run(fresh)
            before = _files(output)
            runs.run(output, *named, parts=parts)
            reused += assert_as_fresh(output, fresh)
            # The same run goes on, or another one follows.
            runs.kill(output, before)
            if output != shared or random.random() < 0.5:
                runs.run(output, *named, parts=parts)
                assert_as_fresh(output, fresh)
        except AssertionError as error:
            place = f"pair {number}, changes {changes}, into {output.name}, with {named}"
            raise AssertionError(f"{place}: {error}") from error
    return reused

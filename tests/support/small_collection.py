"""A small collection with its configuration, in a folder or at a store."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from beamrank.config.load import load_config
from beamrank.config.run import RunConfig
from beamrank.storage import files as storage
from pipelines.launcher import Launcher
from tests.support.checkpoints import Pair, save_pair
from tests.support.runs import PlannedRun, plan_run, trec_lines

_WORDS = ("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jetty")
_DRAWN = random.Random(3)
DOCS = {
    f"d{number}": " ".join(_DRAWN.choices(_WORDS, k=_DRAWN.randrange(4, 160)))
    for number in range(30)
}
TOPICS = {f"q{number}": " ".join(_DRAWN.choices(_WORDS, k=4)) for number in range(10)}
CANDIDATES = {query_id: _DRAWN.sample(sorted(DOCS), 9) for query_id in TOPICS}


class SmallCollection:
    """A corpus and topics in a folder, and a configuration whose paths are relative to it.

    By default thirty docs and ten topics of made-up words, in four shards. Each `with_*` adds what
    it names.

    Attributes:
        folder: where the files are.
        keys: the configuration; `path` writes it.
    """

    def __init__(
        self,
        folder: Path,
        docs: Mapping[str, str] = DOCS,
        topics: Mapping[str, str] = TOPICS,
        **keys: Any,
    ) -> None:
        self.folder = folder
        self.topics = topics
        self.keys: dict[str, Any] = {
            "run_tag": "test",
            "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
            "topics": {"path": "topics.tsv", "format": "tsv"},
            "threads": 1,
            "shards": 4,
            "dtype": "float32",
            "device": "cpu",
            # As workers on other machines compute.
            "kernel": "torch",
            "output": "out",
            **keys,
        }
        self.write(
            "corpus.jsonl",
            (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in docs.items()),
        )
        self.write("topics.tsv", (f"{query_id}\t{text}" for query_id, text in topics.items()))

    def write(self, name: str, lines: Iterable[str]) -> None:
        """Writes lines to a file of the folder."""
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def given_run(self, candidates: Mapping[str, Sequence[str]] = CANDIDATES, k: int = 9) -> Self:
        """A run of these candidates is the first stage."""
        self._drop("index", "bm25")
        self.write("given.trec", trec_lines(candidates))
        self.keys["candidates"] = {"run": "given.trec", "k": k}
        return self

    def with_index(self, k: int = 9) -> Self:
        """BM25 is the first stage; the index is built when a run is planned."""
        self._drop("candidates")
        self.keys |= {"index": {"path": "index"}, "bm25": {"k": k}}
        return self

    def with_models(self, pair: Pair | None = None, mono_k: int = 6, duo_k: int = 3) -> Self:
        """Scores with these checkpoints; by default with tiny ones beside the corpus, whose tokens
        are letters.
        """
        if pair is None:
            save_pair(self.folder)
            pair = Pair("./mono", "./duo")
            self.keys["input"] = {"max_length": 64, "max_query_length": 16}
        self.keys["mono"] = {"checkpoint": pair.mono, "k": mono_k}
        self.keys["duo"] = {"checkpoint": pair.duo, "k": duo_k}
        return self

    def with_qrels(
        self, relevant: Mapping[str, str] | None = None, measures: Sequence[str] = ("RR@10",)
    ) -> Self:
        """Judges one doc of each topic relevant; by default the fifth of `CANDIDATES`."""
        judged = relevant or {query_id: CANDIDATES[query_id][4] for query_id in self.topics}
        self.write("qrels.txt", (f"{query_id} 0 {doc_id} 1" for query_id, doc_id in judged.items()))
        self.keys |= {"qrels": "qrels.txt", "measures": list(measures)}
        return self

    def _drop(self, *keys: str) -> None:
        for key in keys:
            self.keys.pop(key, None)

    @property
    def output(self) -> Path:
        """The folder that runs write to by default."""
        return self.folder / "out"

    @property
    def path(self) -> Path:
        """The configuration file, written as `keys` are now."""
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.keys))
        return path

    @property
    def config(self) -> RunConfig:
        """The configuration, loaded."""
        return load_config(str(self.path))

    def plan(self, *overrides: str, output: Path | str | None = None) -> PlannedRun:
        """Checks everything that is checked before a run starts."""
        return plan_run(self.path, overrides, output)

    def run(
        self,
        *overrides: str,
        output: Path | str | None = None,
        launcher: type[Launcher] | None = None,
    ) -> PlannedRun:
        """Plans and executes a run in this process."""
        return self.plan(*overrides, output=output).run(launcher)

    def upload(self, url: str) -> str:
        """Copies everything but indexes and outputs to a store; returns the URL of the
        configuration there.
        """
        self.path.touch()
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder)
            if path.is_file() and name.parts[0] not in ("index", "out"):
                storage.upload(str(path), storage.join(url, str(name)))
        return storage.join(url, "config.yaml")


def small_cascade(folder: Path) -> SmallCollection:
    """A given run, two tiny models and qrels: three Beam jobs of a fraction of a second each."""
    return SmallCollection(folder).given_run().with_models().with_qrels()

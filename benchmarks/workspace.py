"""The working folder of a benchmark: the collection, an index, checkpoints and configurations."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import yaml

from beamrank.records import Topic
from benchmarks.datasets.squad import read_squad
from benchmarks.subprocess_meter import BEAMRANK, run_metered
from models.checkpoints.checkpoint import resolve_checkpoint
from models.checkpoints.files import read_config

MEASURES = ("RR@10", "nDCG@10", "R@100")


@dataclass(frozen=True)
class Depths:
    """How many candidates each stage receives."""

    bm25: int = 100
    mono: int = 100
    duo: int = 10


@dataclass(frozen=True)
class Settings:
    """The settings that decide the figures, beside the machine."""

    questions: int
    pairs: int
    memory_topics: Sequence[int]
    rounds: int
    depths: Depths = Depths()


class Workspace:
    """Prepares what is measured; a part may use what an earlier one left here."""

    def __init__(self, folder: Path, archive: Path, settings: Settings) -> None:
        """Writes the corpus."""
        self.folder = folder
        self.settings = settings
        self.squad = read_squad(archive)
        self.squad.write_corpus(folder)

    @property
    def topics(self) -> list[Topic]:
        """The chosen questions."""
        return self.squad.chosen(self.settings.questions)

    def index(self) -> Path:
        """A Lucene index of the passages, built at the first call, outside of every figure."""
        run_metered([BEAMRANK, "index", self.config(self.topics[:1], self.settings.depths)])
        return self.folder / "index"

    def config(self, topics: list[Topic], depths: Depths, index: Path | None = None) -> Path:
        """A configuration file for some topics; a run's output is given on the command line."""
        name = "-".join(map(str, (len(topics), *astuple(depths))))
        folder = self.folder / f"topics-{name}"
        self.squad.write_topics(folder, topics)
        values: dict[str, Any] = {
            "run_tag": "bench",
            "corpus": {"path": str(self.folder / "corpus.jsonl"), "format": "jsonl"},
            "topics": {"path": "topics.tsv", "format": "tsv"},
            "qrels": "qrels.txt",
            "index": {"path": str(index or self.folder / "index")},
            "bm25": {"k1": 0.9, "b": 0.4, "k": depths.bm25},
            "mono": {"checkpoint": "embedded:mono", "k": depths.mono},
            "duo": {"checkpoint": "embedded:duo", "k": depths.duo},
            "measures": list(MEASURES),
            "output": "out",
        }
        path = folder / f"config{'' if index is None else '-own-index'}.yaml"
        path.write_text(yaml.safe_dump(values))
        return path

    def describe(self) -> dict[str, Any]:
        """The settings as in the results file."""
        return {
            **asdict(self.settings),
            "passages": len(self.squad.passages),
            "checkpoints": {kind: _describe(kind) for kind in ("mono", "duo")},
        }


def _describe(kind: str) -> str:
    checkpoint = resolve_checkpoint(f"embedded:{kind}", kind)
    config, labels = read_config(checkpoint.folder, kind), checkpoint.architecture.num_labels
    return (
        f"embedded:{kind} ({config['num_hidden_layers']} layers, {config['hidden_size']} wide, "
        f"{labels} logits)"
    )

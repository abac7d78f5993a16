"""What a run costs after an earlier one, when a part of its inputs or a setting changed.

    python -m benchmarks.reuse --folder FOLDER [--only fresh "5 % new topics" ...] [--compare]

SQuAD's passages, mono.k 1,000, duo.k 50. Each change is a `beamrank run` into a copy of the first
run's output, from which it reuses what it can. With --compare the same run is also done into an
empty output, and the parts and runs of both are compared byte by byte. Rows are kept in FOLDER, so
that changes can be measured one at a time.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.records import Doc
from benchmarks.commands import parser_of
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.squad import ARCHIVE, read_squad
from benchmarks.subprocess_meter import BEAMRANK, run_metered
from models.scoring.reuse import find_reused
from models.stages.core import open_stage
from models.stages.scoring import ScoringStage

# One topic, or doc, of so many is another.
_EVERY = 20
_FIRST = "fresh"
_SCORED = ("mono", "duo")


@dataclass(frozen=True)
class Change:
    """The collection and the keys of a run after an earlier one; `before` are keys of that one."""

    collection: str = "first"
    keys: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)


CHANGES = {
    _FIRST: Change(),
    "5 % new topics": Change("topics"),
    "5 % new or changed docs": Change("docs"),
    "both": Change("both"),
    "mono.k 1,000 to 500": Change(keys={"mono.k": 500}),
    "mono.k 500 to 1,000": Change(before={"mono.k": 500}),
    "duo.k 50 to 30": Change(keys={"duo.k": 30}),
    "aggregation": Change(keys={"duo.aggregation": "max"}),
    "run tag": Change(keys={"run_tag": "another"}),
    "measures": Change(keys={"measures": ["AP"]}),
    "shards": Change(keys={"shards": 3}),
    "threads": Change(keys={"threads": 1}),
}


@dataclass(frozen=True)
class Row:
    """A run: its wall clock seconds, and the inferences that each stage made and reused.

    `same_bytes` is whether its parts and runs are those of a run into an empty output.
    """

    seconds: float
    counts: Mapping[str, Sequence[int]]
    same_bytes: bool | None = None

    def cells(self, name: str, first: "Row") -> str:
        """A line of the table, beside the first run."""
        made, asked = (
            sum(scored for scored, _ in self.counts.values()),
            sum(map(sum, self.counts.values())),
        )
        stages = [f"{scored:,} of {scored + reused:,}" for scored, reused in self.counts.values()]
        same = {None: "", True: "yes", False: "**no**"}[self.same_bytes]
        shares = [
            f"{made / asked:.1%}",
            f"{self.seconds:.1f}",
            f"{self.seconds / first.seconds:.0%}",
        ]
        return f"| {' | '.join([name, *stages, *shares, same])} |"


def write_collections(folder: Path, squad: Collection, topics: int) -> None:
    """The passages without every 40th; the same with other topics; all passages, of which others
    were changed.
    """
    chosen = squad.chosen(topics + topics // _EVERY)
    first, later = chosen[:topics], chosen[topics // _EVERY :]
    docs = tuple(doc for number, doc in enumerate(squad.passages) if number % (2 * _EVERY))
    changed = tuple(
        _changed(doc, number % (2 * _EVERY) == _EVERY) for number, doc in enumerate(squad.passages)
    )
    for name, some_topics, some_docs, index in (
        ("first", first, docs, "index"),
        ("topics", later, docs, "../first/index"),
        ("docs", first, changed, "index"),
        ("both", later, changed, "index"),
    ):
        collection = Collection(some_docs, tuple(some_topics), squad.qrels)
        collection.write_topics(folder / name, some_topics)
        collection.write_corpus(folder / name)
        (folder / name / "config.yaml").write_text(
            yaml.safe_dump({**_CONFIG, "index": {"path": index}})
        )


def _changed(doc: Doc, change: bool) -> Doc:
    return Doc(doc.doc_id, f"Corrected: {doc.text}") if change else doc


_CONFIG = {
    "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
    "topics": {"path": "topics.tsv", "format": "tsv"},
    "qrels": "qrels.txt",
    "bm25": {"k": 1000},
    "mono": {"checkpoint": "embedded:mono", "k": 1000},
    "duo": {"checkpoint": "embedded:duo", "k": 50},
    "output": "out",
}


def measure(folder: Path, name: str, settings: Mapping[str, Any]) -> Row:
    """Makes a change after the first run, or does the first run itself."""
    change, output = CHANGES[name], _output(folder, name)
    if name != _FIRST:
        before = _output(folder, _FIRST)
        if change.before:
            before = _output(folder, f"{name} before")
            _run(folder / change.collection, before, {**settings, **change.before})
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(before, output)
    done = (
        set()
        if name == _FIRST
        else {each.digest for stage in _SCORED for each in _receipts(output, stage)}
    )
    seconds = _run(folder / change.collection, output, {**settings, **change.keys})
    return Row(
        seconds, {stage: _made_and_kept(_receipts(output, stage), done) for stage in _SCORED}
    )


def _receipts(output: Path, stage: str) -> Sequence[Receipt]:
    return _sealed(read_plan(str(output)), stage).receipts


def _made_and_kept(receipts: Sequence[Receipt], done: Set[str]) -> tuple[int, int]:
    """The inferences that a run made, and those that it took over or whose shards were done
    before.
    """
    asked = sum(each.counts["inferences"] + each.counts["reused"] for each in receipts)
    made = sum(each.counts["inferences"] for each in receipts if each.digest not in done)
    return made, asked - made


def compare(folder: Path, name: str, settings: Mapping[str, Any]) -> bool:
    """Whether the parts and runs after a change are those of a run into an empty output."""
    change, fresh = CHANGES[name], _output(folder, f"{name} compared")
    _run(folder / change.collection, fresh, {**settings, **change.keys})
    return _content(_output(folder, name)) == _content(fresh)


def _output(folder: Path, name: str) -> Path:
    return folder / "outputs" / name.replace(" ", "-").replace("%", "percent")


def _run(collection: Path, output: Path, keys: Mapping[str, Any]) -> float:
    """The seconds of `beamrank run`, with those of its index where there is none."""
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return run_metered(
        [BEAMRANK, "run", collection / "config.yaml", "--output", output, *sets]
    ).seconds


def _content(output: Path) -> dict[str, str | bytes]:
    """The parts of the current plan, whose names hold their content's digest, and the bytes of its
    runs.
    """
    plan = read_plan(str(output))
    seals = [seal for seal in (plan.sealed(stage.name) for stage in plan.stages) if seal]
    runs = [stage.run_name for stage in plan.stages if stage.run_name]
    return {
        **{f"{seal.stage}/{each.shard}": each.part for seal in seals for each in seal.receipts},
        **{name: (output / "runs" / f"{name}.trec").read_bytes() for name in runs},
    }


def lookup_share(output: Path) -> float:
    """The time of looking scores up in earlier parts of the same size that have none of the texts,
    over all time.
    """
    plan = read_plan(str(output))
    looked_up = scored = 0.0
    for name in _SCORED:
        stage, record = open_stage(plan.stages, name), plan.stage(name)
        assert isinstance(stage, ScoringStage)
        tasks = plan.tasks(record, [_sealed(plan, each) for each in stage.inputs])
        for task, receipt in zip(tasks, _sealed(plan, name).receipts, strict=True):
            looked_up += _lookup_seconds(
                stage, task, InputPart(plan.folder(name), receipt), record.keys
            )
            scored += receipt.seconds
    return looked_up / scored


def _sealed(plan: Plan, stage: str) -> Manifest:
    seal = plan.sealed(stage)
    assert seal is not None
    return seal


def _lookup_seconds(
    stage: ScoringStage, task: ShardTask, part: InputPart, keys: Mapping[str, Any]
) -> float:
    """What reading earlier tokens and scores, and comparing their inputs, adds to a shard."""
    tokens = task.inputs[0].read()
    inputs = stage.prepare(tokens, task).inputs
    # Each text begins with a different token, so none is the same.
    rows = [
        {**row, "doc_tokens": [[999, *doc] for doc in row["doc_tokens"]]}
        for row in tokens.to_pylist()
    ]
    changed = pa.Table.from_pylist(rows, tokens.schema)
    start = time.monotonic()
    task.inputs[0].read()
    find_reused(inputs, [stage.reusable(changed, part.read(), keys)])
    return time.monotonic() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the table."""
    options = _parser().parse_args(arguments)
    settings = {
        "input.max_length": options.max_length,
        "input.max_query_length": options.max_length // 4,
    }
    if not (options.folder / "first").exists():
        write_collections(options.folder, read_squad(options.squad), options.topics)
    for name in options.only:
        path = options.folder / f"{_output(options.folder, name).name}.json"
        row = (
            Row(**json.loads(path.read_text()))
            if path.exists()
            else measure(options.folder, name, settings)
        )
        if options.compare and row.same_bytes is None and name != _FIRST:
            row = replace(row, same_bytes=compare(options.folder, name, settings))
        path.write_text(json.dumps(asdict(row)))
    rows = {name: options.folder / f"{_output(options.folder, name).name}.json" for name in CHANGES}
    found = {
        name: Row(**json.loads(path.read_text())) for name, path in rows.items() if path.exists()
    }
    print(
        "| change | mono | duo | inferences | seconds | of fresh | same bytes "
        "|\n|---|---|---|---|---|---|---|"
    )
    print("\n".join(row.cells(name, found[_FIRST]) for name, row in found.items()))
    print(
        f"looking up, of the time of scoring: {lookup_share(_output(options.folder, _FIRST)):.2%}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("benchmarks.reuse", __doc__)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="of collections, outputs and rows")
    add(
        "--only",
        nargs="+",
        default=list(CHANGES),
        choices=CHANGES,
        metavar="CHANGE",
        help=", ".join(CHANGES).replace("%", "%%"),
    )
    add("--compare", action="store_true", help="do each run into an empty output too")
    add("--topics", type=int, default=20, help="(%(default)s)")
    add("--max-length", type=int, default=64, help="input.max_length (%(default)s)")
    add("--squad", type=Path, default=ARCHIVE, help="SQuAD 1.1 as HTML pages in a tar.gz")
    return parser


if __name__ == "__main__":
    main()

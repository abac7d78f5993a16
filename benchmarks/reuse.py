"""What a run costs after an earlier one, when a part of its inputs or a setting changed.

    python -m benchmarks.reuse --folder FOLDER [--only fresh "5 % new topics" ...] [--compare]

SQuAD's passages, by default mono.k 1,000 and duo.k 50. Each change is a `beamrank run` into a copy
of an earlier run's output, from which it reuses what it can. With --compare the same run is also
done into an empty output, and the parts and runs of both are compared byte by byte. Rows are kept
in FOLDER, so that changes can be measured one at a time.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.records import Doc, Topic
from benchmarks.commands import parser_of
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.squad import ARCHIVE, read_squad
from benchmarks.subprocess_meter import BEAMRANK, run_metered
from models.scoring.answers import CONTENTS, Answered
from models.stages.attempt import shard_inputs
from models.stages.core import open_stage
from models.stages.scoring import ScoringStage
from tests.contrib.generators.cases import GENERATORS, save_generator

# One topic, or doc, of so many is another.
_EVERY = 20
_FIRST = "fresh"


@dataclass(frozen=True)
class Change:
    """The collection and the keys of a run after an earlier one; `before` are keys of that one, if
    it is not the fresh run, and `base` its collection.
    """

    collection: str = "first"
    keys: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    base: str = "first"


def _segments(length: int, stride: int, limit: int) -> Mapping[str, Any]:
    return {"length_tokens": length, "stride_tokens": stride, "limit": limit}


def _cascade(*stages: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"mono": None, "duo": None, "cascade": stages}


def changes(depth: int) -> Mapping[str, Change]:
    """The changes of a cascade with mono.k `depth` and a twentieth of it as duo.k."""
    half, pairs = depth // 2, depth // 20
    duo_k = pairs * 3 // 5
    mono = {"mono": {"checkpoint": "embedded:mono", "k": half}}
    long = {"checkpoint": "embedded:mono", "k": pairs, "segments": _segments(24, 24, 4)}
    sampled = {"duo.aggregation": "sample", "duo.opponents": 5}
    prompted = {"mono": {**_PROMPTED, "k": pairs}, "duo": None, "input.max_length": 256}
    deeper = {"deeper": {"k": depth, "inferences": half * 30}}
    return {
        _FIRST: Change(),
        "5 % new topics": Change("topics"),
        "5 % new or changed docs": Change("docs"),
        "both": Change("both"),
        "`mono.k` to half": Change(keys={"mono.k": half}),
        "`mono.k` from half": Change(before={"mono.k": half}),
        "`duo.k`": Change(keys={"duo.k": duo_k}),
        "`duo.opponents`": Change(keys=sampled | {"duo.opponents": 8}, before=sampled),
        "`mono.segments`": Change(keys={"mono.segments": _segments(24, 24, 4)}),
        "their stride": Change(
            keys={"mono.segments": _segments(24, 12, 4)},
            before={"mono.segments": _segments(24, 24, 4)},
        ),
        "their limit": Change(
            keys={"mono.segments": _segments(24, 24, 4)},
            before={"mono.segments": _segments(24, 24, 2)},
        ),
        "a second stage with segments": Change(
            keys=_cascade(mono, {"mono": {**long, "name": "long"}}), before=_cascade(mono)
        ),
        "instructions": Change("instructions", prompted, prompted, base="instructed"),
        "ends of docs": Change("ends"),
        "`deeper`": Change(keys=_cascade(mono, deeper), before=_cascade(mono)),
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
        stages = ", ".join(
            f"{name} {scored:,} of {scored + reused:,}"
            for name, (scored, reused) in self.counts.items()
        )
        same = {None: "", True: "yes", False: "**no**"}[self.same_bytes]
        shares = [
            f"{made / asked:.1%}",
            f"{self.seconds:.1f}",
            f"{self.seconds / first.seconds:.0%}",
        ]
        return f"| {' | '.join([name, stages, *shares, same])} |"


def write_collections(folder: Path, squad: Collection, topics: int) -> None:
    """The passages without every 40th; the same with other topics, and with other ends; all
    passages, of which others were changed; topics with instructions, and with another one.
    """
    chosen = squad.chosen(topics + topics // _EVERY)
    first, later = chosen[:topics], chosen[topics // _EVERY :]
    docs = tuple(doc for number, doc in enumerate(squad.passages) if number % (2 * _EVERY))
    changed = tuple(
        _changed(doc, number % (2 * _EVERY) == _EVERY) for number, doc in enumerate(squad.passages)
    )
    ends = tuple(
        Doc(doc.doc_id, f"{doc.text} Corrected.") if number % _EVERY == 1 else doc
        for number, doc in enumerate(docs)
    )
    for name, some_topics, some_docs, index in (
        ("first", first, docs, "index"),
        ("topics", later, docs, "../first/index"),
        ("docs", first, changed, "index"),
        ("both", later, changed, "index"),
        ("ends", first, ends, "../first/index"),
        ("instructed", first, docs, "../first/index"),
        ("instructions", first, docs, "../first/index"),
    ):
        collection = Collection(some_docs, tuple(some_topics), squad.qrels)
        collection.write_topics(folder / name, some_topics)
        collection.write_corpus(folder / name)
        config = {**_CONFIG, "index": {"path": index}}
        if name.startswith("instruct"):
            _write_instructions(folder / name, some_topics, name)
            config["topics"] = {"path": "topics.jsonl"}
        (folder / name / "config.yaml").write_text(yaml.safe_dump(config))
    save_generator(folder / "prompted", "Qwen3")


def _write_instructions(folder: Path, topics: Sequence[Topic], name: str) -> None:
    """Topics with one instruction; in `instructions` every 20th has another."""
    rows = (
        {
            "id": topic.query_id,
            "text": topic.text,
            "instruction": f"Find {name if number % _EVERY == 0 else 'passages'}",
        }
        for number, topic in enumerate(topics)
    )
    (folder / "topics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _changed(doc: Doc, change: bool) -> Doc:
    return Doc(doc.doc_id, f"Corrected: {doc.text}") if change else doc


_PROMPTED = {
    "checkpoint": "../prompted",
    "instruction": "{instruction}",
    **GENERATORS["Qwen3"].options,
}
_CONFIG: dict[str, Any] = {
    "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
    "topics": {"path": "topics.tsv", "format": "tsv"},
    "qrels": "qrels.txt",
    "bm25": {"k": 1000},
    "mono": {"checkpoint": "embedded:mono", "k": 1000},
    "duo": {"checkpoint": "embedded:duo", "k": 50},
    "output": "out",
}


def measure(folder: Path, name: str, change: Change, settings: Mapping[str, Any]) -> Row:
    """Makes a change after an earlier run, or does the first run itself."""
    output = _output(folder, name)
    done: set[str] = set()
    if name != _FIRST:
        before = _output(folder, _FIRST)
        if change.before:
            before = _output(folder, f"{name} before")
            _run(folder / change.base, before, {**settings, **change.before})
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(before, output)
        done = {each.digest for receipts in _receipts(output).values() for each in receipts}
    seconds = _run(folder / change.collection, output, {**settings, **change.keys})
    counts = {stage: _made_and_kept(each, done) for stage, each in _receipts(output).items()}
    return Row(seconds, {stage: count for stage, count in counts.items() if sum(count)})


def _receipts(output: Path) -> Mapping[str, Sequence[Receipt]]:
    plan = read_plan(str(output))
    return {stage.name: _sealed(plan, stage.name).receipts for stage in plan.stages}


def _made_and_kept(receipts: Sequence[Receipt], done: Set[str]) -> tuple[int, int]:
    """The inferences that a run made, and those that it reused or whose shards were done before."""
    asked = sum(
        receipt.counts.get("inferences", 0) + receipt.counts.get("reused", 0)
        for receipt in receipts
    )
    made = sum(
        receipt.counts.get("inferences", 0) for receipt in receipts if receipt.digest not in done
    )
    return made, asked - made


def compare(folder: Path, name: str, change: Change, settings: Mapping[str, Any]) -> bool:
    """Whether the parts and runs after a change are those of a run into an empty output."""
    fresh = _output(folder, f"{name} compared")
    _run(folder / change.collection, fresh, {**settings, **change.keys})
    return _content(_output(folder, name)) == _content(fresh)


def _output(folder: Path, name: str) -> Path:
    return folder / "outputs" / name.replace(" ", "-").replace("%", "percent").replace("`", "")


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
    seals = [seal for seal in (plan.seal(stage.name) for stage in plan.stages) if seal]
    runs = [stage.run_name for stage in plan.stages if stage.run_name]
    return {
        **{f"{seal.stage}/{each.shard}": each.part for seal in seals for each in seal.receipts},
        **{name: (output / "runs" / f"{name}.trec").read_bytes() for name in runs},
    }


def lookup_share(output: Path) -> float:
    """The time of looking scores up in an earlier part with all of them, over all time."""
    plan = read_plan(str(output))
    looked_up = scored = 0.0
    for name in ("mono", "duo"):
        stage, record = open_stage(plan.stages, name), plan.stage(name)
        assert isinstance(stage, ScoringStage)
        tasks = plan.tasks(record, [_sealed(plan, each) for each in stage.inputs])
        for task, receipt in zip(tasks, _sealed(plan, name).receipts, strict=True):
            looked_up += _lookup_seconds(stage, task, InputPart(plan.folder(name), receipt))
            scored += receipt.seconds
    return looked_up / scored


def _sealed(plan: Plan, stage: str) -> Manifest:
    seal = plan.seal(stage)
    assert seal is not None
    return seal


def _lookup_seconds(stage: ScoringStage, task: ShardTask, part: InputPart) -> float:
    """What reading an earlier part and looking all inputs up adds to a shard."""
    inputs = shard_inputs(stage, task)
    prepared = stage.prepare(inputs)
    start = time.monotonic()
    answers = stage.known_answers(part.read(), task.inputs[0].read(CONTENTS))
    Answered.of(prepared, replace(inputs, earlier=[answers]).find)
    return time.monotonic() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the table."""
    options = _parser().parse_args(arguments)
    settings = {
        "input.max_length": options.max_length,
        "input.max_query_length": options.max_length // 4,
        "bm25.k": options.depth,
        "mono.k": options.depth,
        "duo.k": options.depth // 20,
    }
    folder, made = options.folder, changes(options.depth)
    if not (folder / "first").exists():
        write_collections(folder, read_squad(options.squad), options.topics)
    rows = {}
    for name in options.only:
        path = folder / f"{_output(folder, name).name}.json"
        row = (
            Row(**json.loads(path.read_text()))
            if path.exists()
            else measure(folder, name, made[name], settings)
        )
        if options.compare and row.same_bytes is None and name != _FIRST:
            row = replace(row, same_bytes=compare(folder, name, made[name], settings))
        path.write_text(json.dumps(asdict(row)))
        rows[name] = row
    print("| change | inferences | of all | seconds | of fresh | same bytes |")
    print("|---|---|---|---|---|---|")
    first = Row(**json.loads((folder / f"{_FIRST}.json").read_text()))
    print("\n".join(row.cells(name, first) for name, row in rows.items()))
    print(f"looking up, of the time of scoring: {lookup_share(_output(folder, _FIRST)):.2%}")


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("benchmarks.reuse", __doc__)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="of collections, outputs and rows")
    add(
        "--only",
        nargs="+",
        default=list(changes(1000)),
        choices=changes(1000),
        metavar="CHANGE",
        help=", ".join(changes(1000)).replace("%", "%%"),
    )
    add("--compare", action="store_true", help="do each run into an empty output too")
    add("--topics", type=int, default=20, help="(%(default)s)")
    add("--depth", type=int, default=1000, help="mono.k (%(default)s)")
    add("--max-length", type=int, default=64, help="input.max_length (%(default)s)")
    add("--squad", type=Path, default=ARCHIVE, help="SQuAD 1.1 as HTML pages in a tar.gz")
    return parser


if __name__ == "__main__":
    main()

"""What a run costs after an earlier one, when a part of its inputs or a setting changed.

    python -m benchmarks.reuse --folder FOLDER [--only fresh "5 % new topics" ...] [--compare]

SQuAD's passages, by default mono.k 1,000 and duo.k 50. Each change is a `beamrank run` into a copy
of an earlier run's output, from which it reuses what it can. With --compare the same run is also
done into an empty output, and the parts and runs of both are compared byte by byte. Rows are kept
in FOLDER, so that changes can be measured one at a time.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from beamrank.commit.plan import read_plan
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.records import Doc
from benchmarks.commands import parser_of
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.squad import ARCHIVE, read_squad
from benchmarks.outputs import sealed
from benchmarks.subprocess_meter import BEAMRANK, run_metered
from models.scoring.answers import CONTENTS, Answered
from models.stages.attempt import shard_inputs
from models.stages.core import open_stage
from models.stages.scoring import ModelStage
from tests.contrib.generators.cases import GENERATORS, save_generator
from tests.support.runs import assert_as_fresh

# One topic, or doc, of so many is another.
_EVERY = 20
_FIRST = "fresh"


class Change(NamedTuple):
    """The collection and the keys of a run after an earlier one; `before` are keys of that one, if
    it is not the fresh run, and `base` its collection.
    """

    collection: str = "first"
    keys: Mapping[str, Any] = {}
    before: Mapping[str, Any] = {}
    base: str = "first"


def _segments(stride: int, limit: int) -> Mapping[str, Any]:
    return {"length_tokens": 24, "stride_tokens": stride, "limit": limit}


def _cascade(*stages: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"mono": None, "duo": None, "cascade": stages}


def changes(depth: int) -> Mapping[str, Change]:
    """The changes of a cascade with mono.k `depth` and a twentieth of it as duo.k."""
    half, pairs = depth // 2, depth // 20
    duo_k = pairs * 3 // 5
    # `mono` is taken out by its name.
    mono = {"mono": {"checkpoint": "embedded:mono", "k": half, "name": "docs"}}
    long = {**mono["mono"], "k": pairs, "name": "long", "segments": _segments(24, 4)}
    pooled, shifted, fewer = (
        {"mono.segments": _segments(*each)} for each in ((24, 4), (12, 4), (24, 2))
    )
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
        "`mono.segments`": Change(keys=pooled),
        "their stride": Change(keys=shifted, before=pooled),
        "their limit": Change(keys=pooled, before=fewer),
        "a second stage with segments": Change(
            keys=_cascade(mono, {"mono": long}), before=_cascade(mono)
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


Row = dict[str, Any]
"""A run: its wall clock `seconds`, the `counts` of each stage's inferences, made and reused; and
`same_bytes`, whether its parts and runs are those of a run into an empty output.
"""


def _line(name: str, row: Row, fresh: float) -> str:
    """A line of the table, beside the seconds of the fresh run."""
    counts = row["counts"]
    stages = [f"{stage} {made:,} of {made + kept:,}" for stage, (made, kept) in counts.items()]
    made, kept = (sum(column) for column in zip(*counts.values(), strict=True))
    shares = f"{made / (made + kept):.1%} | {row['seconds']:.1f} | {row['seconds'] / fresh:.0%}"
    return f"| {name} | {', '.join(stages)} | {shares} | {row.get('same_bytes', '')} |"


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
        ("ends", first, ends, "index"),
        ("instructed", first, docs, "../first/index"),
        ("instructions", first, docs, "../first/index"),
    ):
        collection = Collection(some_docs, tuple(some_topics), squad.qrels)
        collection.write_topics(folder / name, some_topics)
        collection.write_corpus(folder / name)
        config = {**_CONFIG, "index": {"path": index}}
        if name.startswith("instruct"):
            config["topics"] = {"path": "topics.jsonl"}
            # In `instructions` every 20th topic has another one.
            rows = [
                {"id": query_id, "text": text, "instruction": "Find passages"}
                for query_id, text in some_topics
            ]
            for row in rows[::_EVERY]:
                row["instruction"] = f"Find {name}"
            lines = "".join(f"{json.dumps(row)}\n" for row in rows)
            (folder / name / "topics.jsonl").write_text(lines)
        (folder / name / "config.yaml").write_text(yaml.safe_dump(config))
    save_generator(folder / "prompted", "Qwen3")


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
    output, done = _output(folder, name), set[str]()
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
    return {
        "seconds": seconds,
        "counts": {stage: both for stage, both in counts.items() if any(both)},
    }


def _receipts(output: Path) -> Mapping[str, Sequence[Receipt]]:
    plan = read_plan(str(output))
    return {stage.name: sealed(plan, stage.name).receipts for stage in plan.stages}


def _made_and_kept(receipts: Sequence[Receipt], done: Set[str]) -> tuple[int, int]:
    """The inferences that a run made, and those that it reused or whose shards were done before."""
    made = asked = 0
    for receipt in receipts:
        own, reused = (receipt.counts.get(name, 0) for name in ("inferences", "reused"))
        made += 0 if receipt.digest in done else own
        asked += own + reused
    return made, asked - made


def compare(folder: Path, name: str, change: Change, settings: Mapping[str, Any]) -> str:
    """Whether the parts and runs after a change are those of a run into an empty output."""
    fresh = _output(folder, f"{name} compared")
    _run(folder / change.collection, fresh, {**settings, **change.keys})
    try:
        assert_as_fresh(_output(folder, name), fresh)
    except AssertionError:
        return "**no**"
    return "yes"


def _output(folder: Path, name: str) -> Path:
    return folder / "outputs" / name.replace(" ", "-").replace("%", "percent").replace("`", "")


def _run(collection: Path, output: Path, keys: Mapping[str, Any]) -> float:
    """The seconds of `beamrank run`, with those of its index where there is none."""
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return run_metered(
        [BEAMRANK, "run", collection / "config.yaml", "--output", output, *sets]
    ).seconds


def lookup_share(output: Path) -> float:
    """The time of looking scores up in an earlier part with all of them, over all time."""
    plan = read_plan(str(output))
    looked_up = scored = 0.0
    for name in ("mono", "duo"):
        stage, record = open_stage(plan.stages, name), plan.stage(name)
        assert isinstance(stage, ModelStage)
        tasks = plan.tasks(record, [sealed(plan, each) for each in stage.inputs])
        for task, receipt in zip(tasks, sealed(plan, name).receipts, strict=True):
            looked_up += _lookup_seconds(stage, task, InputPart(plan.folder(name), receipt))
            scored += receipt.seconds
    return looked_up / scored


def _lookup_seconds(stage: ModelStage, task: ShardTask, part: InputPart) -> float:
    """What reading an earlier part and looking all inputs up adds to a shard."""
    inputs = shard_inputs(stage, task)
    prepared = stage.prepare(inputs)
    start = time.monotonic()
    answers = stage.known_answers(part.read(), task.inputs[0].read(CONTENTS))
    Answered.of(prepared, replace(inputs, earlier=[answers]).find)
    return time.monotonic() - start


_OPTIONS = {
    "--folder": (Path("build/reuse"), "of collections, outputs and rows"),
    "--only": (list(changes(1000)), "the changes"),
    "--compare": (False, "do each run into an empty output too"),
    "--topics": (20, "how many"),
    "--depth": (1000, "mono.k"),
    "--max-length": (64, "input.max_length"),
    "--squad": (ARCHIVE, "SQuAD 1.1 as HTML pages in a tar.gz"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the table."""
    options = parser_of("benchmarks.reuse", __doc__, _OPTIONS).parse_args(arguments)
    settings = {
        "input.max_length": options.max_length,
        "input.max_query_length": options.max_length // 4,
        "bm25.k": options.depth,
        "mono.k": options.depth,
        "duo.k": options.depth // 20,
    }
    folder, made = options.folder.resolve(), changes(options.depth)
    if not (folder / "first").exists():
        write_collections(folder, read_squad(options.squad), options.topics)
    print("| change | inferences | of all | seconds | of fresh | same bytes |")
    print("|---|---|---|---|---|---|")
    for name in options.only:
        path = folder / f"{_output(folder, name).name}.json"
        row: Row = json.loads(path.read_text()) if path.exists() else {}
        row = row or measure(folder, name, made[name], settings)
        if options.compare and name != _FIRST:
            row = {"same_bytes": compare(folder, name, made[name], settings), **row}
        path.write_text(json.dumps(row))
        fresh = json.loads((folder / f"{_FIRST}.json").read_text())
        print(_line(name, row, fresh["seconds"]), flush=True)
    print(f"looking up, of the time of scoring: {lookup_share(_output(folder, _FIRST)):.2%}")


if __name__ == "__main__":
    main()

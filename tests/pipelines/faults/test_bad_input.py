"""Bad input: an error before work starts, or a row that is counted and reported. Never lost, never
guessed at.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_status
from beamrank.errors import ConfigError, DataError, PreflightError
from tests.support.checkpoints import SPECIAL_TOKENS, save_tiny
from tests.support.processes import beamrank_here, succeed
from tests.support.refusals import refuses
from tests.support.runs import read_trec, trec_lines
from tests.support.small_collection import SmallCollection
from tests.support.tiers import slow_but

DOCS = {
    "d1": "A cat sat on the mat and purred at the sun.",
    "d2": "Trains leave the station at noon, and arrive at night.",
    "d3": "The sun is a star; the cat does not care.",
    "d4": "Stations are places where trains stop for a while.",
}
TOPICS = {"q1": "cat in the sun", "q2": "when do trains leave"}
CANDIDATES = {"q1": ["d1", "d3", "d2"], "q2": ["d2", "d4", "d1"]}
ROWS = [f"{doc_id}\t{text}".encode() for doc_id, text in DOCS.items()]

Runs = dict[str, dict[str, list[str]]]


class Collection(SmallCollection):
    """Four docs in a TSV file, whose lines may be anything."""

    def write_corpus(self, lines: Iterable[bytes]) -> None:
        (self.folder / "corpus.tsv").write_bytes(b"".join(line + b"\n" for line in lines))

    def runs(self, *overrides: str) -> Runs:
        """Executes a run; returns the order of docs in each run file."""
        self.run(*overrides)
        return {path.stem: read_trec(path) for path in (self.output / "runs").glob("*.trec")}

    def bad_rows(self) -> dict[str, int]:
        stages = read_status(read_plan(str(self.output)))
        return {stage.stage.split("-")[0]: stage.bad_rows for stage in stages if stage.bad_rows}

    def rejects(self) -> list[dict[str, str]]:
        """All rows that were rejected."""
        rows: list[dict[str, str]] = pq.read_table(self.output / "rejects").to_pylist()
        return rows

    def count(self, step: str, name: str) -> int:
        plan = read_plan(str(self.output))
        manifests = [plan.gather(stage.name) for stage in plan.stages if stage.step == step]
        return sum(manifest.total(name) for manifest in manifests if manifest is not None)


@pytest.fixture
def collection(tmp_path, checkpoints) -> Collection:
    keys = {"corpus": {"path": "corpus.tsv", "format": "tsv"}, "shards": None}
    made = (
        Collection(tmp_path, DOCS, TOPICS, **keys)
        .given_run(CANDIDATES, k=8)
        .with_models(checkpoints, 4, 2)
    )
    (tmp_path / "corpus.jsonl").unlink()
    made.write_corpus(ROWS)
    return made


def _sets(run: dict[str, list[str]]) -> dict[str, set[str]]:
    return {query_id: set(doc_ids) for query_id, doc_ids in run.items()}


# Refused before anything starts.


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("duo.k", "5", ConfigError, r"duo.k 5 .*4 "),
        ("corpus.path", "none.tsv", PreflightError, r"none.tsv"),
        ("corpus.path", "given.trec", PreflightError, "`format: tsv`"),
        ("topics.path", "none.tsv", PreflightError, r"topics .*none.tsv"),
        ("qrels", "none.txt", PreflightError, "qrels .*none.txt"),
    ],
)
def test_plan_refuses_a_configuration(collection: Collection, key, value, error, message) -> None:
    if not key.startswith(("corpus", "topics")):
        collection.write_corpus([b"d1\ttext"])
    collection.write("given.trec", ["q1 Q0 d1 1 1.0 x"])
    with pytest.raises(error, match=message):
        collection.plan(f"{key}={value}")
    assert not list(collection.output.glob("*/"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", ["corpus.path", "topics.path", "qrels", "candidates.run"])
def test_plan_refuses_a_named_pipe(collection: Collection, key) -> None:
    """Nothing writes into it: opening it would wait for ever."""
    os.mkfifo(collection.folder / "pipe")
    with refuses(PreflightError, "not-regular", file="pipe"):
        collection.plan(f"{key}=pipe")


def _with_a_nan(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.bias"][0] = torch.nan
    save_file(weights, folder / "model.safetensors")


def _with_more_tokens(folder: Path) -> None:
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_with_more_tokens, r"7 ids .*5 rows"),
        (_with_a_nan, r"classifier\.bias .*NaN"),
    ],
)
def test_plan_refuses_a_checkpoint_that_gives_no_score(
    collection: Collection, damage, message
) -> None:
    folder = collection.folder / "checkpoint"
    save_tiny(folder, (*SPECIAL_TOKENS[:4], "a"), num_labels=1, vocab_size=5)
    collection.plan("mono.checkpoint=./checkpoint")
    damage(folder)
    with pytest.raises(PreflightError, match=message):
        collection.plan("mono.checkpoint=./checkpoint")


_INSIDE = r"is inside the corpus \(.*docs"


@pytest.mark.parametrize(
    ("path", "corpus_format", "changes", "message"),
    [
        (
            "docs",
            "jsonl",
            {"output": "docs/out"},
            rf"`output` \(.*docs/out\) {_INSIDE}\).*plan-0.json",
        ),
        ("docs/*", "jsonl", {"output": "docs/out"}, rf"`output` \(.*docs/out\) {_INSIDE}/\*\)"),
        ("docs/*.parquet", "parquet", {"output": "docs"}, r"topics-0.parquet"),
        (
            "docs",
            "jsonl",
            {"index": {"path": "docs/index"}},
            rf"`index.path` \(.*docs/index\) {_INSIDE}",
        ),
        (
            "docs",
            "tsv",
            {"output": "docs/out", "run_formats": ["trec", "msmarco"]},
            r"mono.msmarco.tsv",
        ),
    ],
    ids=["output", "glob", "topics", "index", "msmarco run"],
)
def test_plan_refuses_an_output_or_index_inside_the_corpus(
    collection, path, corpus_format, changes, message
):
    if "index" in changes:
        collection.with_index()
    (collection.folder / "docs").mkdir()
    collection.keys |= {"corpus": {"path": path, "format": corpus_format}, **changes}
    with pytest.raises(PreflightError, match=message):
        collection.plan()
    assert list((collection.folder / "docs").iterdir()) == []


def test_plan_accepts_an_output_beside_the_corpus(collection: Collection) -> None:
    (collection.folder / "docs").mkdir()
    (collection.folder / "corpus.tsv").rename(collection.folder / "docs/corpus.tsv")
    collection.keys |= {"corpus": {"path": "docs/*.tsv", "format": "tsv"}, "output": "docs/out"}
    assert collection.plan().plan.output.endswith("docs/out")


@pytest.mark.parametrize(
    ("override", "code", "message"),
    [
        ("duo.k=9", 2, "duo.k 9 "),
        ("qrels=none", 3, "there is no qrels file"),
        ("output=config.yaml/out", 3, "cannot write to the output"),
    ],
)
def test_run_exits_with_the_code_of_its_error(
    collection: Collection, override, code, message
) -> None:
    done = beamrank_here("run", collection.path, "--set", override)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


# Counted and reported.


@pytest.mark.parametrize(
    ("row", "reason"),
    slow_but(
        1,
        [
            (b"d5\tcaf\xe9", "not valid UTF-8"),
            (b"no tab here", "1 column"),
            (b"\ttext", "empty id"),
        ],
    ),
)
def test_run_counts_unreadable_rows_of_the_corpus(
    collection: Collection, row, reason, capsys
) -> None:
    collection.write_corpus([*ROWS[:2], row, *ROWS[2:]])
    for _ in range(2):
        # Also after the error, when every shard of retrieve is complete.
        with pytest.raises(DataError, match=r": 1 \(.*max_bad_rows 0"):
            collection.run("max_bad_rows=0")
    assert not (collection.output / "mono").exists()
    capsys.readouterr()
    for _ in range(2):
        assert set(collection.runs()) == {"candidates", "mono", "duo-sum"}
        (line,) = (
            each for each in capsys.readouterr().err.splitlines() if "could not be read" in each
        )
        assert "corpus.tsv" in line
        assert reason in line
    assert collection.bad_rows() == {"tokenize": 1}
    (rejected,) = collection.rejects()
    assert rejected["kind"] == "docs"
    assert rejected["place"].startswith(f"{rejected['file']} at byte ")
    assert rejected["row"] == row.decode("utf-8", "backslashreplace")
    assert reason in rejected["reason"]


@pytest.mark.slow
def test_run_leaves_out_topics_and_judgments_that_it_was_allowed_to(
    collection: Collection, capsys
) -> None:
    collection.with_qrels({"q1": "d1", "q2": "d2"})
    collection.write("topics.tsv", ["q1\tcat in the sun", "no tab", "q2\twhen do trains leave"])
    collection.write("qrels.txt", ["q1 0 d1 1", "q2 0 d2 1", "q2 0 d4 \x1b[31m"])
    collection.keys["max_bad_rows"] = {"topics": 1, "qrels": 1}
    for kind in ("topics", "qrels"):
        with pytest.raises(PreflightError, match=r"1 (line|problem)"):
            collection.plan(f"max_bad_rows.{kind}=0")
    noted = json.loads(succeed("plan", collection.path, "--json").stdout)["note"]
    capsys.readouterr()
    assert _sets(collection.runs()["mono"]) == _sets(CANDIDATES)
    errors = capsys.readouterr().err
    for kind, place in (
        ("topics", "topics.tsv:2: the row has 1 column"),
        ("qrels", "qrels.txt:3: the row has the relevance '\\x1b"),
    ):
        assert f"rows of {kind} that cannot be used: 1 (" in noted
        assert f"rows of {kind} that cannot be used: 1 (" in errors
        assert place in errors
    rows = {each["kind"]: each["row"] for each in collection.rejects()}
    assert rows == {"topics": "no tab", "qrels": "q2\td4\t\x1b[31m"}
    status = json.loads(succeed("status", collection.output, "--json").stdout)
    assert {kind: each["rows"] for kind, each in status["rejects"].items()} == {
        "topics": 1,
        "qrels": 1,
    }
    assert (
        "topics: 1 bad row left out (rejects/topics-" in succeed("status", collection.output).stdout
    )
    succeed("report", collection.output, "--no-texts")
    assert "bad rows of qrels, left out" in (collection.output / "report/report.html").read_text()


def test_run_names_a_missing_doc(collection: Collection) -> None:
    collection.write("given.trec", trec_lines({**CANDIDATES, "q2": ["d2", "d9", "d4"]}))
    with pytest.raises(
        DataError,
        match=r"shard 0 .*: 1 \(first: 'd9' of query_id 'q2'\)",
    ):
        collection.run()


def test_run_drops_and_counts_missing_docs_on_request(collection: Collection) -> None:
    collection.write("given.trec", trec_lines({"q1": ["d9", "d1", "d3", "d2", "d4"], "q2": ["d9"]}))
    runs = collection.runs("on_missing_doc=drop")
    assert _sets(runs["candidates"]) == {"q1": {"d1", "d2", "d3", "d4", "d9"}, "q2": {"d9"}}
    # d4 is the fifth: mono does not see it, and it stays in the tail.
    assert _sets(runs["mono"]) == _sets(runs["duo-sum"]) == {"q1": {"d1", "d2", "d3", "d4"}}
    assert runs["mono"]["q1"][-1] == "d4"
    assert collection.bad_rows() == {"tokenize": 1}
    assert collection.count("tokenize", "missing_docs") == 1


def test_run_scores_an_empty_passage(collection: Collection) -> None:
    collection.write_corpus([b"d1\t", *ROWS[1:]])
    assert _sets(collection.runs()["duo-sum"]) == _sets(CANDIDATES)
    assert collection.bad_rows() == {}


@pytest.mark.jvm
def test_bm25_of_stop_words_and_a_long_query(collection: Collection) -> None:
    collection.with_index(8)
    long = " ".join(f"word{number} cat" for number in range(1000))
    topics = ["q1\tcat", "stop\tthe and of", "none\tzyzzyva", f"long\t{long}", "marks\t?!."]
    collection.write("topics.tsv", topics)
    runs = collection.runs()
    assert [_sets(runs[name]) for name in ("bm25", "mono", "duo-sum")] == [
        {"q1": {"d1", "d3"}, "long": {"d1", "d3"}}
    ] * 3
    assert collection.count("retrieve", "topics_without_candidates") == 3
    assert collection.count("tokenize", "queries") == 5
    assert collection.count("mono", "truncated_queries") == 1


@pytest.mark.parametrize("levels", [("0", "0"), ("-1", "0")])
def test_qrels_without_a_relevant_doc_are_refused_before_the_scoring(
    collection: Collection, levels
) -> None:
    collection.with_qrels()
    collection.write("qrels.txt", [f"q{at} 0 d1 {level}" for at, level in enumerate(levels, 1)])
    with refuses(PreflightError, "no-relevant-doc", file="qrels.txt"):
        collection.plan()
    assert collection.plan("measures=[]")


@pytest.mark.parametrize(("judged", "is_warned"), [("d4", True), ("d1", False)])
def test_judged_docs_that_are_no_candidates_are_a_warning_before_the_scoring(
    collection: Collection, judged, is_warned
) -> None:
    collection.with_qrels({"q1": judged, "q2": "d3"})
    before, _, after = succeed("run", collection.path).stderr.partition("tokenize-")
    assert ("qrels.txt judges is a candidate" in before) == is_warned
    assert ("judged topics of the run that rank any judged doc: 0 of 2" in after) == is_warned
    measures = json.loads((collection.output / "runs/measures.json").read_text())
    assert (measures["mono"]["RR@10"] == 0) == is_warned


@pytest.mark.slow
def test_empty_list_of_measures_evaluates_nothing(collection: Collection) -> None:
    collection.with_qrels({"q1": "d1", "q2": "d9"}, [])
    noted = succeed("run", collection.path).stderr
    assert "no measures are given: the runs are not evaluated" in noted
    assert not (collection.output / "runs/measures.json").exists()
    succeed("report", collection.output, "--no-texts")
    assert not read_plan(str(collection.output)).qrels
    collection.write("qrels.txt", ["q9 0 d1 1"])
    with pytest.raises(PreflightError, match=" 2 topics"):
        collection.plan("topics.only_judged=true")


@pytest.mark.slow
@pytest.mark.jvm
def test_run_without_candidates_measures_zero(collection: Collection) -> None:
    collection.with_index(8).with_qrels({"none": "d1"}, ("RR@10", "AP"))
    collection.write("topics.tsv", ["stop\tthe and of", "none\tzyzzyva"])
    done = succeed("run", collection.path)
    assert "2 of 2 topics (100.0 %)" in done.stderr
    assert "'none'" in done.stderr
    assert [path.read_text() for path in (collection.output / "runs").glob("*.trec")] == [
        "",
        "",
        "",
    ]
    assert done.stdout.splitlines()[1].split("\t") == ["bm25", "0.0000", "0.0000"]

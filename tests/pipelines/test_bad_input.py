"""Bad input: an error before work starts, or a row that is counted and reported. Never lost, never guessed at."""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import BertConfig, BertForSequenceClassification, BertModel

from beamrank.config.run import load_config
from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.stages.plan import Plan, read_plan
from beamrank.stages.status import read_status
from pipelines.console.progress import ConsoleProgress
from pipelines.planning.make_plan import make_plan
from tests.support.bert import save_tiny
from tests.support.cascades import beamrank_here, read_trec, run_here
from tests.support.processes import undisturbed_run

DOCS = {
    "d1": "A cat sat on the mat and purred at the sun.",
    "d2": "Trains leave the station at noon, and arrive at night.",
    "d3": "The sun is a star; the cat does not care.",
    "d4": "Stations are places where trains stop for a while.",
}
TOPICS = {"q1": "cat in the sun", "q2": "when do trains leave"}
CANDIDATES = {"q1": ["d1", "d3", "d2"], "q2": ["d2", "d4", "d1"]}


class Collection:
    """A tiny collection in a folder, whose first stage is a given run: no JVM, and seconds from end to end."""

    def __init__(self, folder: Path, mono: str, duo: str) -> None:
        self.folder = folder
        self.values: dict[str, Any] = {
            "corpus": {"path": "corpus.tsv", "format": "tsv"},
            "topics": {"path": "topics.tsv", "format": "tsv"},
            "candidates": {"run": "given.trec", "k": 8},
            "mono": {"checkpoint": mono, "k": 4},
            "duo": {"checkpoint": duo, "k": 2},
            "threads": 1,
            "dtype": "float32",
            "output": "out",
        }
        self.write_corpus(f"{doc_id}\t{text}".encode() for doc_id, text in DOCS.items())
        self.write_topics(f"{query_id}\t{text}" for query_id, text in TOPICS.items())
        self.write_candidates(CANDIDATES)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def write_corpus(self, lines: Iterable[bytes]) -> None:
        (self.folder / "corpus.tsv").write_bytes(b"".join(line + b"\n" for line in lines))

    def write_topics(self, lines: Iterable[str]) -> None:
        (self.folder / "topics.tsv").write_text("".join(f"{line}\n" for line in lines))

    def write_candidates(self, candidates: dict[str, list[str]]) -> None:
        rows = (
            f"{query_id} Q0 {doc_id} {rank} {10 - rank} given\n"
            for query_id, doc_ids in candidates.items()
            for rank, doc_id in enumerate(doc_ids, 1)
        )
        (self.folder / "given.trec").write_text("".join(rows))

    def with_index(self) -> None:
        """Retrieves with BM25 instead."""
        del self.values["candidates"]
        self.values |= {"index": {"path": "index"}, "bm25": {"k": 8}}

    def write_config(self) -> Path:
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.values))
        return path

    def plan(self, *overrides: str) -> Plan:
        """All that is checked before anything starts."""
        return make_plan(load_config(str(self.write_config()), overrides), ConsoleProgress(quiet=True))

    def run(self, *overrides: str) -> dict[str, dict[str, list[str]]]:
        """The whole cascade in this process: each run's order of docs."""
        run_here(self.write_config(), self.output, overrides)
        return {path.stem: read_trec(path) for path in (self.output / "runs").glob("*.trec")}

    def bad_rows(self) -> dict[str, int]:
        stages = read_status(read_plan(str(self.output)))
        return {stage.stage.split("-")[0]: stage.bad_rows for stage in stages if stage.bad_rows}

    def count(self, kind: str, name: str) -> int:
        plan = read_plan(str(self.output))
        manifests = [plan.finished(stage.name) for stage in plan.stages if stage.kind == kind]
        return sum(manifest.total(name) for manifest in manifests if manifest is not None)


@pytest.fixture
def collection(tmp_path: Path, mono_checkpoint: str, duo_checkpoint: str) -> Collection:
    return Collection(tmp_path, mono_checkpoint, duo_checkpoint)


def _sets(runs: dict[str, dict[str, list[str]]], name: str) -> dict[str, set[str]]:
    return {query_id: set(doc_ids) for query_id, doc_ids in runs[name].items()}


# What is refused before anything starts.


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ([], "holds no topics"),
        (["", ""], "holds no topics"),
        (["q1\tcat", "q2\ttrain", "q1\tdog"], r"topics.tsv:3: the topic has the query_id 'q1', which line 1 has too"),
        (["q1\t  "], "'q1' has no text"),
        (["q1 cat"], r"topics.tsv:1"),
        (["#q\tcat"], r"topics.tsv:1: the topic has the id '#q', which begins with `#`"),
    ],
    ids=["empty", "blank", "duplicate", "no text", "one column", "comment"],
)
def test_topics_that_cannot_be_used(collection: Collection, topics: list[str], message: str) -> None:
    collection.write_topics(topics)
    with pytest.raises(PreflightError, match=message):
        collection.plan()


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("duo.k", "5", ConfigError, "duo.k 5 is more than the 4 candidates that mono scores"),
        ("mono.k", "9", ConfigError, "mono.k 9 is more than the 8 candidates"),
        ("duo.kk", "5", ConfigError, "duo.kk: unknown key"),
        ("measures", "[nDGC@10]", ConfigError, "unknown measure 'nDGC@10'"),
        ("shards", "0", ConfigError, "shards"),
        ("corpus.path", "none.tsv", PreflightError, "none.tsv does not exist"),
        ("corpus.path", "given.trec", PreflightError, "as `format: tsv`"),
        ("topics.path", "none.tsv", PreflightError, "no topics at .*none.tsv"),
        ("qrels", "none.txt", PreflightError, "no file .*none.txt"),
        ("candidates.run", "none.trec", PreflightError, "no run .*none.trec"),
        ("candidates.run", ".", PreflightError, "no run "),
        ("mono.checkpoint", "./none", PreflightError, "none"),
        ("mono.checkpoint", ".", PreflightError, "no config.json"),
        ("output", "topics.tsv/out", PreflightError, "cannot write to the output .*topics.tsv/out"),
    ],
)
def test_a_configuration_is_checked_whole(
    collection: Collection, key: str, value: str, error: type[BeamrankError], message: str
) -> None:
    if not key.startswith(("corpus", "topics")):
        (collection.folder / "corpus.tsv").write_text("d1\ttext\n")
    (collection.folder / "given.trec").write_text("q1 Q0 d1 1 1.0 x\n")
    with pytest.raises(error, match=message):
        collection.plan(f"{key}={value}")
    assert not list(collection.output.glob("*/"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", ["corpus.path", "topics.path", "qrels", "candidates.run"])
def test_a_job_refuses_a_named_pipe_at_once(collection: Collection, key: str) -> None:
    """Nobody writes into it: opening it would wait for ever."""
    os.mkfifo(collection.folder / "pipe")
    with pytest.raises(
        PreflightError, match=r"pipe is a named pipe \(FIFO\), and a job reads its inputs more than once"
    ):
        collection.plan(f"{key}=pipe")


def _bert(labels: int | None) -> BertModel | BertForSequenceClassification:
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    torch.manual_seed(0)
    if labels is None:
        return BertModel(config)
    config.num_labels = labels
    return BertForSequenceClassification(config)


@pytest.mark.parametrize(
    ("labels", "changes", "message"),
    [
        (None, {}, "bare encoder"),
        (3, {}, "3 labels"),
        (2, {"model_type": "roberta"}, "model_type 'roberta' .*, which cannot be scored; known: 'bert'"),
        (2, {"id2label": {"0": "relevant", "1": "irrelevant"}}, "reversed id2label"),
    ],
    ids=["bare encoder", "three labels", "roberta", "reversed"],
)
def test_checkpoints_that_give_no_score(
    collection: Collection, mono_checkpoint: str, labels: int | None, changes: dict[str, Any], message: str
) -> None:
    folder = collection.folder / "checkpoint"
    _bert(labels).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(mono_checkpoint) / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(PreflightError, match=message):
        collection.plan("mono.checkpoint=./checkpoint")


def test_a_tokenizer_with_more_ids_than_the_embedding_table_is_refused(collection: Collection) -> None:
    folder = collection.folder / "checkpoint"
    folder.mkdir()
    save_tiny(folder, num_labels=1, vocab_size=5)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    collection.plan("mono.checkpoint=./checkpoint")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n")
    with pytest.raises(PreflightError, match=r"checkpoint has 7 ids and the model's embedding table 5 rows"):
        collection.plan("mono.checkpoint=./checkpoint")


@pytest.mark.parametrize(
    ("path", "corpus_format", "changes", "message"),
    [
        (
            "docs",
            "jsonl",
            {"output": "docs/out"},
            r"`output` \(.*docs/out\) is inside the corpus \(.*docs\).*plan-0.json",
        ),
        ("docs/*", "jsonl", {"output": "docs/out"}, r"`output` \(.*docs/out\) is inside the corpus \(.*docs/\*\)"),
        ("docs", "jsonl", {"index": {"path": "docs/index"}}, r"`index.path` \(.*docs/index\) is inside the corpus"),
        ("docs", "tsv", {"output": "docs/out", "run_formats": ["trec", "msmarco"]}, "such as mono.msmarco.tsv"),
    ],
    ids=["output", "glob", "index", "msmarco run"],
)
def test_an_output_or_index_inside_the_corpus_is_refused(
    collection: Collection, path: str, corpus_format: str, changes: dict[str, Any], message: str
) -> None:
    if "index" in changes:
        collection.with_index()
    (collection.folder / "docs").mkdir()
    collection.values |= {"corpus": {"path": path, "format": corpus_format}, **changes}
    with pytest.raises(PreflightError, match=message):
        collection.plan()
    assert list((collection.folder / "docs").iterdir()) == []


def test_an_output_beside_the_files_of_a_corpus_is_fine(collection: Collection) -> None:
    (collection.folder / "docs").mkdir()
    (collection.folder / "corpus.tsv").rename(collection.folder / "docs/corpus.tsv")
    collection.values |= {"corpus": {"path": "docs/*.tsv", "format": "tsv"}, "output": "docs/out"}
    assert collection.plan().output.endswith("docs/out")


def test_a_given_run_with_duplicates(collection: Collection) -> None:
    collection.write_candidates({"q1": ["d1", "d2", "d1"]})
    with pytest.raises(PreflightError, match=r"line 3: query 'q1' has doc 'd1' already on line 1"):
        collection.run()


def test_a_given_run_for_other_topics(collection: Collection) -> None:
    collection.write_candidates({"x1": ["d1"]})
    with pytest.raises(PreflightError, match=r"none of the topics: its first query_id is 'x1', the topics' 'q"):
        collection.run()


@pytest.mark.jvm
def test_an_index_that_is_none_or_of_another_corpus(collection: Collection, config_path: Path) -> None:
    undisturbed_run(config_path)
    collection.with_index()
    with pytest.raises(PreflightError, match="no Lucene index"):
        collection.plan(f"index.path={collection.folder}")
    with pytest.raises(PreflightError, match="another corpus"):
        collection.plan(f"index.path={config_path.parent / 'index'}")


@pytest.mark.jvm
def test_a_doc_id_that_stands_twice_is_found_when_indexing(collection: Collection) -> None:
    collection.with_index()
    collection.write_corpus([b"d1\tcat", b"d2\tsun", b"d1\tdog"])
    with pytest.raises(DataError, match=r"'d1' appears twice in the corpus: .*corpus.tsv.* and .*corpus.tsv"):
        collection.plan()
    assert not (collection.folder / "index").exists()


def test_errors_have_their_exit_codes(collection: Collection) -> None:
    config = collection.write_config()
    for arguments, code, message in (
        (("--set", "duo.k=9"), 2, "duo.k 9 is more than"),
        (("--set", "qrels=none"), 3, "there is no file"),
        (("--output", config / "out"), 3, "cannot write to the output"),
    ):
        done = beamrank_here("run", config, *arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("error: ")
        assert message in done.stderr


# What is counted and reported.


@pytest.mark.parametrize(
    ("row", "reason"),
    [(b"d5\tcaf\xe9", "not valid UTF-8"), (b"no tab here", "1 column where id<TAB>text"), (b"\ttext", "empty id")],
)
def test_rows_of_the_corpus_that_cannot_be_read(
    collection: Collection, row: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{doc_id}\t{text}".encode() for doc_id, text in DOCS.items()]
    collection.write_corpus([*rows[:2], row, *rows[2:]])
    for _ in range(2):
        # Also where every shard is there already, and after the error.
        with pytest.raises(DataError, match=r"that could not be read: 1 \(first.*more than max_bad_rows 0"):
            collection.run("max_bad_rows=0")
    assert not (collection.output / "mono").exists()
    capsys.readouterr()
    for _ in range(2):
        assert set(collection.run()) == {"candidates", "mono", "duo-sum"}
        said = [line for line in capsys.readouterr().err.splitlines() if "could not be read" in line]
        assert len(said) == 1
        assert "corpus.tsv" in said[0]
        assert reason in said[0]
    assert collection.bad_rows() == {"tokenize": 1}


def test_a_doc_that_the_corpus_lacks_is_named(collection: Collection) -> None:
    collection.write_candidates({**CANDIDATES, "q2": ["d2", "d9", "d4"]})
    with pytest.raises(DataError, match=r"of shard 0 that are not in the corpus: 1 \(first: 'd9' of query_id 'q2'\)"):
        collection.run()


def test_a_doc_that_the_corpus_lacks_may_be_dropped(collection: Collection) -> None:
    collection.write_candidates({"q1": ["d9", "d1", "d3", "d2", "d4"], "q2": ["d9"]})
    runs = collection.run("on_missing_doc=drop")
    assert _sets(runs, "candidates") == {"q1": {"d1", "d2", "d3", "d4", "d9"}, "q2": {"d9"}}
    # d4 is the fifth: mono does not see it, and it stays in the tail.
    assert _sets(runs, "mono") == _sets(runs, "duo-sum") == {"q1": {"d1", "d2", "d3", "d4"}}
    assert runs["mono"]["q1"][-1] == "d4"
    assert collection.bad_rows() == {"tokenize": 1}
    assert collection.count("tokenize", "missing_docs") == 1


def test_a_needed_doc_that_stands_twice_is_named_with_both_places(collection: Collection) -> None:
    rows = [f"{doc_id}\t{text}".encode() for doc_id, text in DOCS.items()]
    collection.write_corpus([*rows, b"d2\tanother text"])
    with pytest.raises(DataError, match=r"'d2' appears twice in the corpus: .*corpus.tsv.* and .*corpus.tsv"):
        collection.run()


def test_an_empty_passage_is_scored_like_any_other(collection: Collection) -> None:
    collection.write_corpus([b"d1\t", *(f"{doc_id}\t{DOCS[doc_id]}".encode() for doc_id in ("d2", "d3", "d4"))])
    runs = collection.run()
    assert _sets(runs, "duo-sum") == {query_id: set(doc_ids) for query_id, doc_ids in CANDIDATES.items()}
    assert collection.bad_rows() == {}


def test_a_topic_without_candidates_is_counted(collection: Collection) -> None:
    collection.write_candidates({"q1": ["d1", "d3"]})
    runs = collection.run()
    assert set(runs["candidates"]) == set(runs["mono"]) == set(runs["duo-sum"]) == {"q1"}
    assert collection.count("retrieve", "topics_without_candidates") == 1


def test_queries_that_are_no_topics_are_said(collection: Collection, capsys: pytest.CaptureFixture[str]) -> None:
    collection.write_candidates({**CANDIDATES, "q3": ["d1"]})
    done = beamrank_here("run", collection.write_config())
    assert done.returncode == 0
    assert "queries that are no topics: 1 ('q3', ...); they are left out" in done.stderr
    assert set(read_trec(collection.output / "runs/mono.trec")) == set(TOPICS)


def test_ids_are_never_paths(collection: Collection) -> None:
    query_ids = ["../../x", "'q';$(y)", '"%00"']
    doc_ids = ["../../../d", "/etc/passwd", "d`ls`"]
    collection.write_topics(f"{query_id}\tthe cat" for query_id in query_ids)
    collection.write_corpus(f"{doc_id}\ttext of {doc_id}".encode() for doc_id in doc_ids)
    collection.write_candidates(dict.fromkeys(query_ids, doc_ids))
    before = {path.name for path in collection.folder.parent.iterdir()}
    runs = collection.run()
    assert _sets(runs, "duo-sum") == {query_id: set(doc_ids) for query_id in query_ids}
    assert {path.name for path in collection.folder.parent.iterdir()} == before
    assert {path.name for path in collection.folder.iterdir()} == {
        "config.yaml",
        "corpus.tsv",
        "given.trec",
        "out",
        "topics.tsv",
    }


@pytest.mark.jvm
def test_queries_that_find_nothing_and_a_very_long_one(collection: Collection) -> None:
    collection.with_index()
    long = " ".join(f"word{number} cat" for number in range(1000))
    collection.write_topics(["q1\tcat", "stop\tthe and of", "none\tzyzzyva", f"long\t{long}", "marks\t?!."])
    runs = collection.run()
    for name in ("bm25", "mono", "duo-sum"):
        assert _sets(runs, name) == {"q1": {"d1", "d3"}, "long": {"d1", "d3"}}
    assert collection.count("retrieve", "topics_without_candidates") == 3
    assert collection.count("tokenize", "queries") == 5
    assert collection.count("mono", "truncated_queries") == 1


@pytest.mark.jvm
def test_no_topic_finds_anything(collection: Collection) -> None:
    collection.with_index()
    collection.write_topics(["stop\tthe and of", "none\tzyzzyva"])
    (collection.folder / "qrels").write_text("none 0 d1 1\n")
    collection.values["qrels"] = "qrels"
    done = beamrank_here("run", collection.write_config())
    assert done.returncode == 0, done.stderr
    assert "2 of 2 topics (100.0 %) have no candidates" in done.stderr
    assert "query 'none' has no candidates" in done.stderr
    assert {path.name: path.read_text() for path in (collection.output / "runs").glob("*.trec")} == {
        "bm25.trec": "",
        "mono.trec": "",
        "duo-sum.trec": "",
    }
    assert done.stdout.splitlines()[1].split("\t") == ["bm25", "0.0000", "0.0000", "0.0000", "0.0000"]

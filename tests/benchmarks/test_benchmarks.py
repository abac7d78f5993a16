"""The readers of collections, and the parts of the benchmark that need no measurement."""

import importlib.metadata
import inspect
import json
import logging
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from beamrank.config.load import load_config
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.logs import EventFormatter, log_context
from beamrank.ranking.input_layout import PaddedBatch
from benchmarks import hash_backend, synthetic
from benchmarks.datasets.medquad import read_medquad
from benchmarks.datasets.nfcorpus import read_nfcorpus
from benchmarks.datasets.squad import read_squad
from benchmarks.engine import engines as engine_sides
from benchmarks.engine.sorted_batches import Scored
from benchmarks.hash_backend import HashBackend
from benchmarks.parts import engines, scale, score, tables, topics
from benchmarks.peers import CrossEncoderSetting
from benchmarks.report import render
from benchmarks.results import Part, Results, Target, command_line
from models.checkpoints.checkpoint import resolve_checkpoint
from models.stages import attempt
from tests import ROOT
from tests.support.corpora import save_tar

_PAGE = """<h1>{title}</h1>
<div class="para-wrap"><pre>AT&amp;T was
founded.</pre><pre>not this</pre><strong class="question">Who  was &quot;founded&quot;?</strong>
<span class="answer">AT&amp;T</span><span class="answer">It</span></div>
<div class="para-wrap"><pre id="second">{title}</pre><strong class="question">What?</strong><i class="answer">a</i>
<strong class="question">Why?</strong><i class="answer">b</i></div>"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    names = ("dev/B.html", "dev/A.html", "train/C.html", "LICENSE")
    return save_tar(
        tmp_path / "squad.tar.gz",
        {f"squad/{name}": _PAGE.format(title=name).encode() for name in names},
    )


def save_nfcorpus(path: Path, **changed: bytes) -> Path:
    """Nine judged queries of twelve, with two docs each."""
    files = {
        "corpus.jsonl": "".join(
            json.dumps({"_id": f"d{n}", "title": "", "text": f"doc {n}"}) + "\n" for n in range(2)
        ),
        "queries.jsonl": "".join(
            json.dumps({"_id": f"q{n}", "text": f"query\n{n}"}) + "\n" for n in range(12)
        ),
        "qrels/test.tsv": "header\n"
        + "".join(f"q{n}\td{doc}\t2\n" for n in range(9) for doc in range(2)),
    }
    with zipfile.ZipFile(path, "w") as folder:
        for name, content in files.items():
            folder.writestr(f"nfcorpus/{name}", changed.get(name, content))
    return path


def test_squad_gives_first_pre_and_dev_questions(archive: Path):
    squad = read_squad(archive)
    assert dict(squad.passages)["dev-000-000"] == "AT&T was\nfounded."
    assert dict(squad.passages)["dev-000-001"] == "dev/A.html"
    assert [doc_id for doc_id, _ in squad.passages] == [
        *(
            "train-000-000",
            "train-000-001",
            "dev-000-000",
            "dev-000-001",
            "dev-001-000",
            "dev-001-001",
        )
    ]
    assert [(text, *squad.qrels[query_id]) for query_id, text in squad.topics[:3]] == [
        ('Who was "founded"?', "dev-000-000"),
        ("What?", "dev-000-001"),
        ("Why?", "dev-000-001"),
    ]


def test_nfcorpus_gives_the_judged_queries_of_a_split(tmp_path: Path):
    collection = read_nfcorpus(save_nfcorpus(tmp_path / "nfcorpus.zip"), "test")
    assert collection.passages == (("d0", "doc 0"), ("d1", "doc 1"))
    assert collection.topics == tuple((f"q{n}", f"query {n}") for n in range(9))
    assert collection.qrels["q3"] == {"d0": 2, "d1": 2}


def test_smaller_topic_sample_is_part_of_a_larger_one(archive: Path):
    squad = read_squad(archive)
    assert set(squad.chosen(2)) < set(squad.chosen(5)) < set(squad.chosen(None))
    with pytest.raises(ValueError, match="has 6"):
        squad.chosen(7)


def test_damaged_archives_and_those_of_something_else_are_named(tmp_path: Path, archive: Path):
    def refuse(read, path: Path, message: str) -> None:
        with pytest.raises(PreflightError, match=rf"{path.name} .*{message}"):
            read(path)

    archive.write_bytes(archive.read_bytes()[:-40])
    refuse(read_squad, archive, "EOFError")
    pages = {"dev/page.html": _PAGE.replace("<pre", "<p").encode()}
    refuse(read_squad, save_tar(tmp_path / "a.tar.gz", pages), "<pre>")
    refuse(read_squad, save_tar(tmp_path / "a.tar.gz", {"README": b""}), r"\.html")
    refuse(read_medquad, save_tar(tmp_path / "a.tar.gz", {"a.xml": b"<D><QAPair>"}), "ParseError")
    refuse(read_medquad, save_tar(tmp_path / "a.tar.gz", {"a.xml": b"<D/>"}), "QAPair")
    refuse(
        lambda path: read_nfcorpus(path, "test"),
        save_nfcorpus(tmp_path / "a.zip", **{"corpus.jsonl": b"{}"}),
        "KeyError: '_id'",
    )
    refuse(
        lambda path: read_nfcorpus(path, "dev"),
        save_nfcorpus(tmp_path / "a.zip"),
        "qrels/dev.tsv",
    )


def test_collection_files_are_what_beamrank_reads(archive: Path, tmp_path: Path):
    squad = read_squad(archive)
    squad.write_corpus(tmp_path)
    squad.write_topics(tmp_path, squad.topics)
    units = list_units(CorpusConfig(path=str(tmp_path / "corpus.jsonl"), format="jsonl"))
    batches = [batch for unit in units for batch in read_unit(unit)]
    assert [
        pair for batch in batches for pair in zip(batch.doc_ids, batch.texts, strict=True)
    ] == list(squad.passages)
    assert (
        tuple(read_topics(TopicsConfig(path=str(tmp_path / "topics.tsv"), format="tsv")))
        == squad.topics
    )
    assert read_qrels(str(tmp_path / "qrels.txt")).relevance == squad.qrels


@pytest.mark.data
def test_squad_has_its_published_counts(shared_data: Path):
    squad = read_squad(shared_data / "squad_v1.1.tar.gz")
    splits = [doc_id.split("-")[0] for doc_id, _ in squad.passages]
    assert (splits.count("train"), splits.count("dev"), len(squad.topics)) == (
        18_896,
        2_067,
        10_570,
    )


_SETTINGS = {
    "questions": 5,
    "passages": 6,
    "depths": {"bm25": 4, "mono": 3, "duo": 2},
    "checkpoints": {"mono": "embedded:mono"},
}
_TOKENIZE = Part(
    {"passages": 6, "words_per_passage": 3, "passages_per_second": {"one process": 12_345}},
    (Target("passages tokenized per second", 12_345, "at least", 20_000),),
)
_MEMORY = Part(
    {
        "depths": {"bm25": 4, "mono": 3, "duo": 2},
        "java_heap": "256m",
        "growth": {"mono": 1.01},
        "peak_mib_by_topics": {"125": {"mono": 800}, "500": {"mono": 808}},
    },
    (Target("peak memory", 1.01, "at most", 1.05),),
)


def write_part(path: Path, name: str, part: Part, settings=_SETTINGS) -> dict:
    return Results(
        path, "SQuAD 1.1", settings, "python -m benchmarks", ("tokenize", "memory")
    ).write(name, part, 2.0)


def test_results_of_parts_share_one_file_and_page(tmp_path: Path):
    path = tmp_path / "squad.json"
    write_part(path, "memory", _MEMORY)
    results = write_part(path, "tokenize", _TOKENIZE)
    assert json.loads(path.read_text()) == results
    assert list(results["parts"]) == ["tokenize", "memory"]
    page = render(results)
    assert "| passages tokenized per second | 12,345 | at least | 20,000 | **no** |" in page
    assert "| peak memory | 1.01 | at most | 1.05 | yes |" in page
    assert "| peak mib by topics | mono |\n| --- | --- |\n| 125 | 800 |\n| 500 | 808 |\n" in page
    assert "## Scoring" not in page


def test_results_of_other_settings_are_dropped(tmp_path: Path):
    path = tmp_path / "squad.json"
    write_part(path, "memory", _MEMORY)
    results = write_part(path, "tokenize", _TOKENIZE, {**_SETTINGS, "questions": 6})
    assert list(results["parts"]) == ["tokenize"]


def test_performance_page_is_rendered_from_its_results():
    results = json.loads((ROOT / "benchmarks/results/squad.json").read_text())
    assert (ROOT / "benchmarks/results/performance.md").read_text() == render(results)


def test_command_line_shows_no_absolute_path_and_no_place_of_its_files():
    arguments = [
        "--squad",
        "/home/me/squad.tar.gz",
        "--output=o",
        "--config=/a/b",
        "--work",
        "a",
        "--runner",
        "a/b",
    ]
    shown = "python -m benchmarks --squad squad.tar.gz --config=b --runner a/b"
    assert command_line("benchmarks", arguments) == shown


def test_synthetic_corpus_begins_with_the_smaller_one(tmp_path: Path):
    synthetic.write_corpus(tmp_path / "small", 3)
    synthetic.write_corpus(tmp_path / "large", 70_000)
    small, large = ((tmp_path / name).read_text().splitlines() for name in ("small", "large"))
    assert large[:3] == small
    assert len({line.split("\t")[0] for line in large}) == 70_000


def test_synthetic_configuration_can_be_run(tmp_path: Path):
    corpus = tmp_path / "corpus.tsv"
    synthetic.write_corpus(corpus, 50)
    path = synthetic.write_config(tmp_path / "run", corpus, 50, 7, 5, shards=3)
    config = load_config(str(path))
    assert len(read_topics(config.topics)) == 7
    assert config.shards == 3
    lines = (tmp_path / "run" / "given.trec").read_text().splitlines()
    wanted = {line.split()[2] for line in lines}
    docs = {
        doc_id
        for unit in list_units(config.corpus)
        for batch in read_unit(unit)
        for doc_id in batch.doc_ids
    }
    assert len(lines) == 35
    assert wanted <= docs


def test_engine_time_excludes_the_time_of_the_shards():
    row = engines.compare("local", "mono", few=(10.0, 1.0), many=(14.0, 2.0), more_shards=60)
    assert (row["receipts_seconds"], row["shard_milliseconds"]) == (1.0, 50.0)


def test_scale_target_is_that_the_scan_is_linear():
    """The seconds of a small run are mostly its start, which would hide a scan that grows too
    fast.
    """
    rows = [
        scale.Row(millions * 1_000_000, 1000, 10**6, 63, 100, 10 * millions**2, 900, 0)
        for millions in (1, 2)
    ]
    targets = {target.name: target for target in scale.targets("corpus", rows)}
    growth = targets["seconds of the scan per passage, largest over smallest corpus"]
    assert (growth.measured, growth.met) == (2.0, False)
    assert targets["peak memory, largest over smallest corpus"].met


def test_scoring_refuses_other_inputs_and_scores_that_differ():
    theirs = Scored(np.linspace(-3, 3, 50, dtype=np.float32))
    ours = Scored(theirs.log_odds + np.float32(0.002), tokens=400)
    assert score.check_same(ours, theirs, 400) == pytest.approx(0.002, rel=1e-3)
    for other in (ours._replace(tokens=401), ours._replace(log_odds=theirs.log_odds + 1)):
        with pytest.raises(RuntimeError):
            score.check_same(other, theirs, 400)


@pytest.mark.slow
def test_scoring_has_the_inputs_and_scores_of_its_peer():
    texts = [f"passage {number} about rivers " * 4 ** (number % 5) for number in range(20)]
    pairs = [("which river is the longest", text) for text in texts]
    model = engine_sides.Model(resolve_checkpoint("embedded:mono", "mono").folder, "mono")
    place = engine_sides.Place("cpu", 2)
    ours, theirs = (
        load(model, place)(pairs)
        for load in (
            partial(engine_sides.beamrank, "float32"),
            partial(engine_sides.cross_encoder, CrossEncoderSetting()),
        )
    )
    assert score.check_same(ours, theirs, score.count_tokens(model.folder, pairs)) > 0


def test_collection_has_100_candidates_a_topic_and_a_judged_one_among_them(
    tmp_path: Path, monkeypatch
):
    hash_backend.install(tmp_path / "plugins")
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))
    (entry,) = importlib.metadata.entry_points(group="beamrank.backends", name=hash_backend.NAME)
    # Of its own: the project's benchmarks are not installed.
    assert Path(inspect.getfile(entry.load())) == tmp_path / "plugins/beamrank_hashes.py"
    monkeypatch.setattr(topics, "_PASSAGES", 2000)
    config = load_config(str(topics.write_config(tmp_path, tmp_path / "run", 5)))
    run, judged = (
        read_run(str(tmp_path / "run/given.parquet")),
        read_qrels(str(tmp_path / "run/qrels.txt")),
    )
    assert (
        list(run.order)
        == [topic.query_id for topic in read_topics(config.topics)]
        == list(judged.relevance)
    )
    assert {len(set(docs)) for docs in run.order.values()} == {topics.K}
    assert all(set(docs) <= set(run.order[query_id]) for query_id, docs in judged.relevance.items())


def test_score_from_hashes_depends_on_its_tokens_alone():
    rng = np.random.default_rng(0)
    inputs = [rng.integers(30_000, size=length, dtype=np.int32) for length in (5, 9, 9, 2)]

    def scores(rows, width):
        ids = np.zeros((len(rows), width), np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        return (
            HashBackend()
            .forward(PaddedBatch(ids, ids, np.array([len(row) for row in rows])))
            .tolist()
        )

    together = scores(inputs, 16)
    assert together == [scores([row], len(row))[0] for row in inputs]
    assert len(set(together)) == 4
    assert scores([inputs[1][::-1]], 9) != together[1:2]
    assert all(-8 <= each < 8 for each in together)


@pytest.mark.parametrize(("seconds", "met"), [(99.0, True), (120.0, False)])
def test_targets_are_linear_seconds_and_a_flat_launcher(seconds, met):
    def row(count, spent, peak):
        step = {f"{name}_seconds": spent for name in ("plan", "launch", "work", "seal")}
        step |= {"seconds": spent, "launcher_peak_mib": peak}
        steps = {"tokenize": {**step, "launcher_peak_mib": 9 * peak}, "runs": step}
        return {"topics": count, "steps": steps, "evaluate_seconds": spent}

    limits = topics.targets(
        "local", [row(1000, 1, 500), row(100_000, 10.0, 600), row(1_000_000, seconds, 1500)]
    )
    assert len(limits) == 7
    assert limits[0].met
    assert {target.met for target in limits[1:]} == {met}
    assert len(topics.targets("local", [row(1000, 1, 500), row(10_000, 2, 2000)])) == 1
    assert not topics.targets("flink", [row(1000, 1, 500), row(10_000, 2, 700)])[0].met


def test_shards_that_started_twice_are_counted_from_the_logs(tmp_path: Path):
    starts = {"a": [("mono", 1), ("mono", 2), ("tokenize-1", 1)], "b": [("mono", 2), ("mono", 3)]}
    logger, formatter = attempt.__name__, EventFormatter()
    (tmp_path / "logs").mkdir()
    for name, shards in starts.items():
        lines = []
        for stage, shard in shards:
            with log_context(stage, shard):
                for message in ("started", "done in 0.1 s: rows 1"):
                    values = (logger, logging.INFO, "", 0, message, (), None)
                    lines.append(formatter.format(logging.LogRecord(*values)))
        (tmp_path / "logs" / name).write_text("\n".join(lines))
    assert topics.repeated(tmp_path) == 1


def test_targets_of_lost_hosts_are_the_bytes_the_shards_and_the_launcher():
    row = {"steps": {"retrieve": {"launcher_peak_mib": 900}, "mono": {"launcher_peak_mib": 800}}}

    def met(same_bytes, repeated, peak):
        last = {"same_bytes": same_bytes, "repeated": repeated, "launcher_peak_mib": peak}
        losses = [{"same_bytes": True, "repeated": 1, "launcher_peak_mib": 850}, last]
        return [target.met for target in topics.targets_of_losses(row, losses)]

    assert met(True, 0, 1144) == [True, True, True]
    assert met(False, 2, 1145) == [False, False, False]


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_of_the_readers_have_the_rows_that_pandas_reads(tmp_path: Path, name: str):
    table, path = tables.TABLES[name], tmp_path / name
    table.write(path, 3000)
    table.ours(str(path))
    function, arguments = table.pandas
    assert len(getattr(pd, function)(path, **arguments)) == 3000

"""The benchmark's reader of SQuAD and its report; the measurement itself is `make bench`."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from beamrank.config.run import load_config
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.ranking.input_layout import InputLimits
from beamrank.records import Topic
from benchmarks import agreement, synthetic
from benchmarks.datasets import pair_collections
from benchmarks.datasets.squad import read_squad, write_collection, write_questions
from benchmarks.parts import engines, scale, score
from benchmarks.report import render
from benchmarks.results import Part, Target, command_line, open_results, part_to_json, write_results
from experiments.embedded_pair import teacher_figures
from tests.support.bert import MINILM

_PAGE = """<h1>{title}</h1>
<div class="para-wrap"><pre>AT&amp;T was
founded.</pre><pre>not this</pre><strong class="question">Who  was &quot;founded&quot;?</strong></div>
<div class="para-wrap"><pre id="second">{title}</pre><strong class="question">What?</strong>
<strong class="question">Why?</strong></div>"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "squad.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("dev/B.html", "dev/A.html", "train/C.html", "LICENSE"):
            file = tmp_path / "page"
            file.write_text(_PAGE.format(title=name))
            tar.add(file, f"squad/{name}")
    return path


def test_reads_first_pre_and_dev_questions(archive: Path):
    squad = read_squad(archive)
    assert dict(squad.passages)["dev-000-000"] == "AT&T was\nfounded."
    assert dict(squad.passages)["dev-000-001"] == "dev/A.html"
    assert [doc_id for doc_id, _ in squad.passages] == [
        *("train-000-000", "train-000-001", "dev-000-000", "dev-000-001", "dev-001-000", "dev-001-001")
    ]
    assert [(topic.text, doc_id) for topic, doc_id in squad.questions[:3]] == [
        ('Who was "founded"?', "dev-000-000"),
        ("What?", "dev-000-001"),
        ("Why?", "dev-000-001"),
    ]


def test_smaller_choice_is_part_of_larger(archive: Path):
    squad = read_squad(archive)
    assert set(squad.chosen(2)) < set(squad.chosen(5))
    with pytest.raises(ValueError, match="has 6"):
        squad.chosen(7)


def test_refuses_another_archive(tmp_path: Path):
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(__file__, "dev/page.py")
    with pytest.raises(ValueError, match="no HTML pages"):
        read_squad(path)


def test_collection_is_what_beamrank_reads(archive: Path, tmp_path: Path):
    squad = read_squad(archive)
    write_collection(squad, tmp_path)
    write_questions(squad.questions, tmp_path)
    units = list_units(CorpusConfig(path=str(tmp_path / "corpus.jsonl"), format="jsonl"))
    batches = [batch for unit in units for batch in read_unit(unit)]
    assert [pair for batch in batches for pair in zip(batch.doc_ids, batch.texts, strict=True)] == list(squad.passages)
    topics = read_topics(TopicsConfig(path=str(tmp_path / "topics.tsv"), format="tsv"))
    assert topics == [question.topic for question in squad.questions]
    assert read_qrels(str(tmp_path / "qrels.txt")).relevance["dev-000-001-00"] == {"dev-000-001": 1}


@pytest.mark.data
def test_squad_has_its_published_counts(shared_data: Path):
    squad = read_squad(shared_data / "squad_v1.1.tar.gz")
    splits = [doc_id.split("-")[0] for doc_id, _ in squad.passages]
    assert (splits.count("train"), splits.count("dev"), len(squad.questions)) == (18_896, 2_067, 10_570)


_MACHINE = {
    "cpu": "A Processor",
    "cpu_extensions": ["avx2"],
    "cores": 2,
    "memory_gib": 8.0,
    "gpu": None,
    "system": "Linux",
    "python": "3.11",
    "java": "21",
    "libraries": {"torch": "2"},
}
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


def test_parts_come_together_in_one_file_and_page(tmp_path: Path):
    path = tmp_path / "squad.json"
    for name, part in (("memory", _MEMORY), ("tokenize", _TOKENIZE)):
        results = open_results(path, _MACHINE, _SETTINGS)
        results["parts"][name] = part_to_json(part, 2.0, "python -m benchmarks.cascade", 0.1)
        write_results(path, results, ["tokenize", "memory"])
    results = json.loads(path.read_text())
    assert list(results["parts"]) == ["tokenize", "memory"]
    page = render(results)
    assert "| passages tokenized per second | at least 20,000 | 12,345 | **missed** |" in page
    assert "| peak memory | at most 1.05 | 1.01 | met |" in page
    assert "| mono | 800 | 808 | 1.01 |" in page
    assert "## Scoring" not in page


def test_a_command_does_not_tell_where_things_lie():
    arguments = ["--squad", "/home/me/data/squad.tar.gz", "--output=/tmp/pair.json", "--runner", "a/b", "--topics", "5"]
    shown = "python -m benchmarks.parts.scale --squad squad.tar.gz --output=pair.json --runner a/b --topics 5"
    assert command_line("benchmarks.parts.scale", arguments) == shown


@pytest.mark.parametrize("changed", ["machine", "settings"])
def test_figures_of_other_machines_and_settings_are_not_mixed(tmp_path: Path, changed: str):
    path = tmp_path / "squad.json"
    results = open_results(path, _MACHINE, _SETTINGS)
    results["parts"]["tokenize"] = part_to_json(_TOKENIZE, 2.0, "", 0.1)
    write_results(path, results, ["tokenize"])
    now = {"machine": _MACHINE, "settings": _SETTINGS} | {changed: {"cores": 64}}
    assert open_results(path, _MACHINE, _SETTINGS)["parts"]
    assert open_results(path, now["machine"], now["settings"])["parts"] == {}


def test_a_smaller_synthetic_corpus_begins_the_larger(tmp_path: Path):
    synthetic.write_corpus(tmp_path / "small", 3)
    synthetic.write_corpus(tmp_path / "large", 70_000)
    small, large = ((tmp_path / name).read_text().splitlines() for name in ("small", "large"))
    assert large[:3] == small
    assert len({line.split("\t")[0] for line in large}) == 70_000


def test_a_synthetic_configuration_is_one(tmp_path: Path):
    corpus = tmp_path / "corpus.tsv"
    synthetic.write_corpus(corpus, 50)
    path = synthetic.write_config(tmp_path / "run", corpus, 50, 7, 5, shards=3)
    config = load_config(str(path))
    assert len(read_topics(config.topics)) == 7
    assert config.shards == 3
    lines = (tmp_path / "run" / "given.trec").read_text().splitlines()
    wanted = {line.split()[2] for line in lines}
    docs = {doc_id for unit in list_units(config.corpus) for batch in read_unit(unit) for doc_id in batch.doc_ids}
    assert len(lines) == 35
    assert wanted <= docs


def test_fewer_test_queries_are_part_of_more_and_keep_their_judgments(tmp_path: Path):
    (tmp_path / "qrels").mkdir()
    judged = [(f"q{number}", f"d{doc}") for number in range(9) for doc in range(2)]
    lines = ["query-id\tcorpus-id\tscore", *(f"{query_id}\t{doc_id}\t2" for query_id, doc_id in judged)]
    (tmp_path / "qrels/test.tsv").write_text("\n".join(lines) + "\n")
    queries = [{"_id": f"q{number}", "text": f"query\n{number}"} for number in range(12)]
    (tmp_path / "queries.jsonl").write_text("".join(f"{json.dumps(query)}\n" for query in queries))
    chosen = {}
    for count in (3, 5, 20):
        topics, qrels = tmp_path / f"topics-{count}.tsv", tmp_path / f"qrels-{count}.txt"
        pair_collections.write_test_topics(tmp_path, count, topics, qrels)
        read = {topic.query_id: topic.text for topic in read_topics(TopicsConfig(path=str(topics), format="tsv"))}
        assert read_qrels(str(qrels)).relevance == {query_id: {"d0": 2, "d1": 2} for query_id in read}
        assert all(text == f"query {query_id[1:]}" for query_id, text in read.items())
        chosen[count] = set(read)
    assert [len(chosen[count]) for count in (3, 5, 20)] == [3, 5, 9]
    assert chosen[3] < chosen[5] < chosen[20]


@pytest.mark.slow
@pytest.mark.jvm
def test_the_teacher_ranks_by_the_cosine_of_sentence_transformers(tmp_path: Path):
    docs = [
        "a cat sleeps on a warm mat",
        "the cat of the neighbour ran away",
        "a cat",
        "pets that purr and a cat",
        "dogs",
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"d{n}", "contents": text}) + "\n" for n, text in enumerate(docs)))
    (tmp_path / "topics.tsv").write_text("q\twhere does the cat sleep\nr\tdogs\n")
    (tmp_path / "qrels.txt").write_text("q 0 d0 1\nr 0 d4 1\n")
    collection = pair_collections.Collection(tmp_path, {"path": str(corpus), "format": "jsonl"})
    rows = teacher_figures.rerank(collection, str(MINILM))
    assert [(row["run"], row["queries"]) for row in rows] == [("bm25", 2), ("cosine", 2), ("teacher", 2)]
    model = SentenceTransformer(str(MINILM), device="cpu")
    query, *vectors = model.encode(["where does the cat sleep", *docs[:4]], normalize_embeddings=True)
    wanted = sorted(range(4), key=lambda number: -float(query @ vectors[number]))
    lines = (tmp_path / "out/runs/cosine.trec").read_text().splitlines()[:4]
    assert [line.split()[2] for line in lines] == [f"d{number}" for number in wanted]
    assert float(lines[0].split()[4]) == pytest.approx(float(query @ vectors[wanted[0]]), abs=1e-3)


def test_an_engine_is_not_charged_what_its_shards_took():
    row = engines.compare("local", "mono", few=(10.0, 1.0), many=(14.0, 2.0), more_shards=60)
    assert (row.receipts_seconds, row.shard_milliseconds) == (1.0, 50.0)


def test_linear_is_judged_by_the_scan():
    """The seconds of a small run are mostly those of its start, which would hide a scan that grows too fast."""
    rows = [scale.Row(millions * 1_000_000, 1000, 10**6, 63, 100, 10 * millions**2, 900, 0) for millions in (1, 2)]
    targets = {target.name: target for target in scale.targets("corpus", rows)}
    growth = targets["seconds of the scan per passage, largest over smallest corpus"]
    assert (growth.measured, growth.met) == (2.0, False)
    assert targets["peak memory, largest over smallest corpus"].met


def _scoring_job() -> score.Job:
    texts = {f"d{number}": f"passage {number} about rivers " * 4 ** (number % 5) for number in range(20)}
    topics = (Topic("1", "which river is the longest"), Topic("2", "passage"))
    return score.Job("embedded:mono", topics, (tuple(texts), tuple(texts)[:4]), texts, threads=2, rounds=1)


@pytest.mark.slow
def test_scoring_is_compared_on_the_same_inputs():
    figures = score.compare(_scoring_job())
    assert figures["pairs"] == 24
    assert 0 < figures["largest_difference_float32"] < 0.1


def test_scoring_of_other_inputs_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(score, "_LIMITS", InputLimits("original", 64, 512))
    with pytest.raises(RuntimeError, match="of 24 different inputs of ours and 24 of CrossEncoder's, 20 are the same"):
        score.compare(_scoring_job())


def test_log_odds_may_differ_by_rounding_alone():
    theirs = np.linspace(-3, 3, 50, dtype=np.float32)
    off = np.full(5, 0.001, np.float32)
    agreement.check_log_odds(theirs + np.float32(0.002), theirs, off)
    with pytest.raises(RuntimeError, match=r"differ by 0\.004 "):
        agreement.check_log_odds(theirs + np.float32(0.004), theirs, off)
    one = theirs.copy()
    one[7] += np.float32(0.0205)
    with pytest.raises(RuntimeError, match=r"and by 0\.02\d* at most"):
        agreement.check_log_odds(one, theirs, off)
    with pytest.raises(RuntimeError, match="nan"):
        agreement.check_log_odds(theirs * np.float32("nan"), theirs, off)

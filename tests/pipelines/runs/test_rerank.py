"""`rerank` in memory gives what `beamrank run` writes, to the bit."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import beamrank
from beamrank.errors import ConfigError, DataError
from beamrank.formats.runs import read_run
from beamrank.frames import run_of_frame
from models.rerank import rerank
from models.reranker import Reranker
from models.stages.compute import Computed, ShardInputs
from models.stages.scoring import ModelStage
from tests.support.checkpoints import save_pair
from tests.support.processes import succeed
from tests.support.runs import read_trec
from tests.support.small_collection import SmallCollection

WORDS = (
    "the open oven door lets steam escape so that crusts stay crisp while bread bakes slowly "
    "in a hot stone house"
)
DOCS = {
    f"d{number}": " ".join((WORDS.split() * 3)[number % 11 : number % 11 + 4 + number * 7 % 40])
    for number in range(30)
}
# More topics than a shard holds.
TOPICS = {
    f"q{number}": " ".join(WORDS.split()[number % 13 : number % 13 + 2 + number % 5])
    for number in range(19)
}
K, K0, K1 = 9, 7, 4


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    """A run in which two scores tie and one topic has no candidates."""
    folder = tmp_path_factory.mktemp("rerank")
    made = SmallCollection(folder, DOCS, TOPICS, shards=None).given_run({}, K)
    made.with_models(save_pair(folder, vocabulary=None), K0, K1)
    rows = (
        f"q{number} Q0 d{(number * 5 + rank * 3) % 30} {rank} {20.1 - max(rank, 2) * 1.7} t"
        for number in range(18)
        for rank in range(K)
    )
    made.write("given.trec", rows)
    return made


@pytest.fixture(scope="module")
def mono(collection: SmallCollection) -> str:
    return str(collection.folder / "mono")


def _keyed(rows: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """NaN does not equal itself, so values are compared as they are written."""
    return {(row["query_id"], row.get("doc_id", "")): repr(row) for row in rows}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rerank_equals_the_command_line_bit_for_bit(
    collection: SmallCollection, mono, dtype, tmp_path, monkeypatch
):
    run = collection.run(f"dtype={dtype}", "kernel=auto", output=tmp_path / "out")
    assert len(run.plan.shards) == 2
    raw: dict[str, list[dict[str, object]]] = {"mono": [], "duo": []}
    compute = ModelStage.compute

    def recorded(stage: ModelStage, inputs: ShardInputs) -> Computed:
        computed = compute(stage, inputs)
        raw[stage.name] += computed.part.to_pylist()
        return computed

    monkeypatch.setattr(ModelStage, "compute", recorded)
    duo = str(collection.folder / "duo")
    found = rerank(
        TOPICS,
        collection.folder / "given.trec",
        DOCS,
        mono=mono,
        duo=duo,
        k0=K0,
        k1=K1,
        dtype=dtype,
        threads=1,
    )
    assert list(found) == ["mono", "duo-sum"]
    for name, ranking in found.items():
        beamrank.write_run(ranking, tmp_path / "run.trec", tag="test")
        assert (tmp_path / "run.trec").read_bytes() == (
            tmp_path / f"out/runs/{name}.trec"
        ).read_bytes()
    for stage in ("mono", "duo"):
        stored = _keyed(run.rows(stage))
        assert _keyed(raw[stage]) == {
            key: row for key, row in stored.items() if key[0] in found["mono"]
        }


def test_run_reads_a_file_and_gives_paths_and_measures(
    collection: SmallCollection, capsys, tmp_path
) -> None:
    (tmp_path / "qrels").write_text("q1 0 d5 1\nq2 0 d10 1\n")
    qrels = str(tmp_path / "qrels")
    changes = {
        "mono.k": 3,
        "duo": None,
        "qrels": qrels,
        "measures": ["RR@10"],
        "topics.limit": None,
    }
    path = collection.path
    result = beamrank.run(path, set=changes, output=tmp_path / "other")
    assert capsys.readouterr().out == ""
    assert result.output == str(tmp_path / "other")
    assert result.runs == {
        name: str(tmp_path / f"other/runs/{name}.trec") for name in ("candidates", "mono")
    }
    for name, run in result.runs.items():
        assert result.measures[name] == beamrank.evaluate(run, qrels, "RR@10").means
    alone = beamrank.run(path, set=changes, output=tmp_path / "other", stage="mono")
    assert (alone.runs, alone.measures) == ({}, {})


def test_aggregate_equals_the_file_that_the_command_writes(
    collection: SmallCollection, tmp_path
) -> None:
    output = collection.run(output=tmp_path / "out").plan.output
    written = succeed("aggregate", output, "--aggregation", "min", "--k1", "3")
    beamrank.write_run(beamrank.aggregate(output, "min", k1=3), tmp_path / "again.trec", tag="test")
    assert (tmp_path / "again.trec").read_bytes() == Path(written.stdout.strip()).read_bytes()
    with pytest.raises(ConfigError, match="'median'"):
        beamrank.aggregate(output, "median")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runner": "gpu"}, r"'gpu' .*local, embed"),
        ({"stage": "rank"}, r"rank: .*retrieve"),
        ({"set": {"mono.depth": 3}}, r"mono\.depth: "),
        ({"set": {"mono.k": "many"}}, r"mono.k: "),
    ],
)
def test_run_refuses_wrong_arguments(collection: SmallCollection, changes, message) -> None:
    with pytest.raises(ConfigError, match=message):
        beamrank.run(collection.path, **changes)


def test_rerank_looks_up_only_scored_docs(collection: SmallCollection, mono) -> None:
    asked: set[str] = set()

    class Corpus(Mapping[str, str]):
        def __getitem__(self, doc_id: str) -> str:
            asked.add(doc_id)
            return DOCS[doc_id]

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("a corpus is never read whole")

        def __len__(self) -> int:
            raise AssertionError("a corpus is never counted")

    given = read_run(str(collection.folder / "given.trec"), ties="rank")
    run = given.to_dict()
    reranker = Reranker(mono, dtype="float32")
    found = rerank(TOPICS, run, Corpus(), mono=reranker, k0=3)
    assert found == rerank(TOPICS, collection.folder / "given.trec", DOCS, mono=reranker, k0=3)
    assert asked == {doc_id for doc_ids in given.order.values() for doc_id in doc_ids[:3]}
    for query_id, doc_ids in read_trec(collection.folder / "given.trec").items():
        assert set(found["mono"][query_id]) == set(doc_ids)
        assert list(found["mono"][query_id])[3:] == given.order[query_id][3:]


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame, pl.DataFrame])
def test_rerank_gives_frames_the_runs_of_dictionaries(
    collection: SmallCollection, mono, frame
) -> None:
    path, reranker = collection.folder / "given.trec", Reranker(mono, dtype="float32")
    wanted = rerank(TOPICS, path, DOCS, mono=reranker, k0=3)["mono"]
    topics = frame({"query_id": list(TOPICS), "text": list(TOPICS.values())})
    corpus = frame({"doc_id": list(DOCS), "text": list(DOCS.values())})
    rows = list(zip(*(line.split() for line in path.read_text().splitlines()), strict=True))
    run = frame(
        {
            "qid": rows[0],
            "docno": rows[2],
            "rank": list(map(int, rows[3])),
            "score": list(map(float, rows[4])),
        }
    )
    for given in (run, path):
        found = rerank(topics, given, corpus, mono=reranker, k0=3)["mono"]
        assert type(found) is type(run)
        assert run_of_frame(found).to_dict() == wanted
    assert (
        rerank(topics, run_of_frame(run, ties="rank").to_dict(), corpus, mono=reranker, k0=3)[
            "mono"
        ]
        == wanted
    )


def test_rerank_counts_what_it_leaves_out(mono, caplog) -> None:
    run = {"q1": {"d1": 1.0}, "other": {"d2": 1.0}}
    found = rerank({"q1": "oven", "q2": "door"}, run, DOCS, mono=Reranker(mono))
    assert list(found["mono"]) == ["q1"]
    assert "topics without candidates: 1 (first: 'q2')" in caplog.text
    assert "queries that are not topics: 1 (first: 'other')" in caplog.text


def test_rerank_names_a_missing_doc_before_loading() -> None:
    with pytest.raises(DataError, match=r"1 \(first: 'd99' of query_id 'q1'"):
        rerank({"q1": "oven"}, {"q1": {"d1": 2.0, "d99": 1.0}}, DOCS, mono="/nowhere")


def test_rerank_skips_the_text_of_an_unscored_doc(mono) -> None:
    run = {"q1": {"d1": 2.0, "d99": 1.0}}
    found = rerank({"q1": "oven"}, run, DOCS, mono=mono, k0=1)
    assert list(found["mono"]["q1"]) == ["d1", "d99"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topics": {"q1": " "}}, "'q1' .*' '"),
        ({"topics": {"q9": "oven"}}, "1 topics: .*'q1', .*'q9'"),
        ({"run": {"q1": {"d1": float("nan")}}}, "'d1' .*nan"),
        ({"run": {"q1": {}}}, "run"),
        ({"run": {"q1": {7: 1.0}}}, r"'q1' .*7 .int."),
        ({"corpus": {"d1": None}}, r"'d1' .*NoneType"),
    ],
)
def test_rerank_refuses_bad_input(mono, changes, message) -> None:
    good: dict[str, Any] = {"topics": {"q1": "oven"}, "run": {"q1": {"d1": 1.0}}, "corpus": DOCS}
    with pytest.raises(DataError, match=message):
        rerank(**{**good, **changes}, mono=mono)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k0": 0}, "k0"),
        ({"aggregation": "median"}, "aggregation: 'median'"),
        ({"aggregation": "sample"}, "opponents"),
        ({"truncation": "none"}, r"truncation: .*'original'"),
        ({"truncation": "hf", "duo": "embedded:duo"}, "`hf`"),
        ({"device": "tpu"}, "cuda:N .*'tpu'"),
        ({"dtype": "int8"}, "dtype"),
    ],
)
def test_rerank_refuses_wrong_options(mono, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        rerank({"q1": "oven"}, {"q1": {"d1": 1.0}}, DOCS, **{"mono": mono, **options})


def test_rerank_takes_no_options_beside_a_reranker(mono) -> None:
    reranker = Reranker(mono)
    with pytest.raises(ConfigError, match=r"`mono` .*dtype"):
        rerank({"q1": "oven"}, {"q1": {"d1": 1.0}}, DOCS, mono=reranker, dtype="float32")
    with pytest.raises(ConfigError, match=r"`duo` .*'mono'"):
        rerank({"q1": "oven"}, {"q1": {"d1": 1.0}}, DOCS, mono=reranker, duo=reranker)

"""`rerank` in memory gives what `beamrank run` writes, to the bit."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from transformers import BertTokenizer
from typer.testing import CliRunner

import beamrank
from beamrank.errors import ConfigError, DataError
from beamrank.formats.runs import read_run
from beamrank.stages.plan import Plan, read_plan
from models.rerank import Cascade, rerank
from models.reranker import Reranker
from pipelines.cli import app
from tests.support.bert import MINILM, save_tiny
from tests.support.cascades import read_trec

WORDS = "the open oven door lets steam escape so that crusts stay crisp while bread bakes slowly in a hot stone house"
DOCS = {
    f"d{number}": " ".join((WORDS.split() * 3)[number % 11 : number % 11 + 4 + number * 7 % 40]) for number in range(30)
}
# More topics than a shard holds.
TOPICS = {f"q{number}": " ".join(WORDS.split()[number % 13 : number % 13 + 2 + number % 5]) for number in range(19)}
K, K0, K1 = 9, 7, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection, two checkpoints, and a run in which two scores tie and one topic has no candidates."""
    folder = tmp_path_factory.mktemp("rerank")
    for name, segments in (("mono", 2), ("duo", 3)):
        (folder / name).mkdir()
        save_tiny(folder / name, vocab_size=30522, type_vocab_size=segments)
        BertTokenizer.from_pretrained(MINILM).save_pretrained(folder / name)
    (folder / "corpus.tsv").write_text("".join(f"{doc_id}\t{text}\n" for doc_id, text in DOCS.items()))
    (folder / "topics.tsv").write_text("".join(f"{query_id}\t{text}\n" for query_id, text in TOPICS.items()))
    rows = (
        f"q{number} Q0 d{(number * 5 + rank * 3) % 30} {rank} {20.1 - max(rank, 2) * 1.7} t\n"
        for number in range(18)
        for rank in range(K)
    )
    (folder / "given.trec").write_text("".join(rows))
    return folder


def _config(folder: Path, dtype: str) -> dict[str, object]:
    """A configuration whose relative paths are relative to the folder."""
    return {
        "corpus": {"path": "corpus.tsv", "format": "tsv"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "candidates": {"run": "given.trec"},
        "mono": {"checkpoint": str(folder / "mono"), "k": K0},
        "duo": {"checkpoint": str(folder / "duo"), "k": K1},
        "dtype": dtype,
        "output": f"out-{dtype}",
    }


def _raw(plan: Plan, stage: str) -> dict[tuple[str, ...], object]:
    manifest = plan.sealed(stage)
    assert manifest is not None
    rows = [row for each in manifest.receipts for row in plan.folder(stage).read_part(each).to_pylist()]
    return _keyed(rows)


def _keyed(rows: list[dict[str, object]]) -> dict[tuple[str, ...], object]:
    """NaN does not equal itself, so values are compared as they are written."""
    return {(str(row["query_id"]), str(row.get("doc_id"))): repr(row) for row in rows}


class _Recorded(Cascade):
    """Keeps the raw scores of all shards."""

    raw: ClassVar[dict[str, list[dict[str, object]]]]

    def score(self, *arguments: Any) -> Any:
        mono, duo = super().score(*arguments)
        self.raw["mono"] += mono.to_pylist()
        self.raw["duo"] += duo.to_pylist()
        return mono, duo


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rerank_equals_the_command_line_bit_for_bit(
    folder: Path, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = beamrank.run(_config(folder, dtype))
    plan = read_plan(result.output)
    assert len(plan.shards) == 2
    monkeypatch.setattr("models.rerank.Cascade", _Recorded)
    monkeypatch.setattr(_Recorded, "raw", {"mono": [], "duo": []}, raising=False)
    models: dict[str, Any] = {"mono": str(folder / "mono"), "duo": str(folder / "duo")}
    found = rerank(TOPICS, folder / "given.trec", DOCS, **models, k0=K0, k1=K1, dtype=dtype, threads=1)
    assert list(found) == ["mono", "duo-sum"]
    for name, run in found.items():
        beamrank.write_run(run, tmp_path / "run.trec")
        assert (tmp_path / "run.trec").read_bytes() == Path(result.runs[name]).read_bytes()
    for stage in ("mono", "duo"):
        assert _keyed(_Recorded.raw[stage]) == {
            key: row for key, row in _raw(plan, stage).items() if key[0] in found["mono"]
        }


def test_run_reads_a_file_and_gives_paths_and_measures(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**_config(folder, "float32"), "measures": ["RR@10"]}))
    (folder / "qrels").write_text("q1 0 d5 1\nq2 0 d10 1\n")
    changes = {"mono.k": 3, "duo": None, "qrels": str(folder / "qrels"), "topics.limit": None}
    result = beamrank.run(path, set=changes, output=tmp_path / "other")
    assert capsys.readouterr().out == ""
    assert result.output == str(tmp_path / "other")
    assert result.runs == {name: str(tmp_path / f"other/runs/{name}.trec") for name in ("candidates", "mono")}
    for name, run in result.runs.items():
        assert result.measures[name] == beamrank.evaluate(run, folder / "qrels", "RR@10").means
    alone = beamrank.run(path, set=changes, output=tmp_path / "other", stage="mono")
    assert (alone.runs, alone.measures) == ({}, {})


def test_aggregate_equals_the_file_that_the_command_writes(folder: Path, tmp_path: Path) -> None:
    config = {**_config(folder, "float32"), "output": str(tmp_path / "out")}
    path = folder / "aggregated.yaml"
    path.write_text(yaml.safe_dump(config))
    output = beamrank.run(path).output
    written = CliRunner().invoke(app, ["aggregate", output, "--aggregation", "min", "--k1", "3"])
    assert written.exit_code == 0, written.output
    beamrank.write_run(beamrank.aggregate(output, "min", k1=3), tmp_path / "again.trec")
    assert (tmp_path / "again.trec").read_bytes() == Path(written.stdout.strip()).read_bytes()
    with pytest.raises(ConfigError, match="unknown aggregation 'median'"):
        beamrank.aggregate(output, "median")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runner": "gpu"}, "runner 'gpu' does not exist: give one of local, embed"),
        ({"stage": "rank"}, "stage 'rank' does not exist: give one of retrieve"),
        ({"set": {"mono.depth": 3}}, "unknown key"),
        ({"set": {"mono.k": "many"}}, "mono.k: Input should be a valid integer"),
    ],
)
def test_run_refuses_wrong_arguments(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        beamrank.run(_config(folder, "float32"), **changes)


def test_rerank_takes_a_run_in_memory_and_looks_up_scored_docs_only(folder: Path) -> None:
    asked: set[str] = set()

    class Corpus(Mapping[str, str]):
        def __getitem__(self, doc_id: str) -> str:
            asked.add(doc_id)
            return DOCS[doc_id]

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("a corpus is never read whole")

        def __len__(self) -> int:
            raise AssertionError("a corpus is never counted")

    given = read_run(str(folder / "given.trec"), ties="rank")
    run = {
        query_id: dict(zip(ids, given.scores[query_id].tolist(), strict=True)) for query_id, ids in given.order.items()
    }
    reranker = Reranker(str(folder / "mono"), dtype="float32")
    found = rerank(TOPICS, run, Corpus(), mono=reranker, k0=3)
    assert found == rerank(TOPICS, folder / "given.trec", DOCS, mono=reranker, k0=3)
    assert asked == {doc_id for doc_ids in given.order.values() for doc_id in doc_ids[:3]}
    for query_id, doc_ids in read_trec(folder / "given.trec").items():
        assert set(found["mono"][query_id]) == set(doc_ids)
        assert list(found["mono"][query_id])[3:] == given.order[query_id][3:]


def test_rerank_counts_what_it_leaves_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = {"q1": {"d1": 1.0}, "other": {"d2": 1.0}}
    found = rerank({"q1": "oven", "q2": "door"}, run, DOCS, mono=Reranker(str(folder / "mono")))
    assert list(found["mono"]) == ["q1"]
    assert "topics without candidates: 1 (first: 'q2')" in caplog.text
    assert "queries that are not topics: 1 (first: 'other')" in caplog.text


def test_rerank_names_a_doc_that_is_missing_before_it_loads_a_model() -> None:
    with pytest.raises(DataError, match=r"not in the corpus: 1 \(first: 'd99' of query_id 'q1'"):
        rerank({"q1": "oven"}, {"q1": {"d1": 2.0, "d99": 1.0}}, DOCS, mono="/nowhere")


def test_rerank_leaves_an_unscored_doc_out_of_the_look_up(folder: Path) -> None:
    run = {"q1": {"d1": 2.0, "d99": 1.0}}
    found = rerank({"q1": "oven"}, run, DOCS, mono=str(folder / "mono"), k0=1)
    assert list(found["mono"]["q1"]) == ["d1", "d99"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topics": {"q1": " "}}, "the topic 'q1' has no text"),
        ({"topics": {"q9": "oven"}}, "none of the 1 topics: its first query_id is 'q1', the topics' 'q9'"),
        ({"run": {"q1": {"d1": float("nan")}}}, "the score of doc 'd1' is not finite"),
        ({"run": {"q1": {}}}, "the run has no rows"),
        ({"run": {"q1": {7: 1.0}}}, "query 'q1' of the run has the id 7 .int.: ids are strings"),
        ({"corpus": {"d1": None}}, "the text of doc_id 'd1' is not a string but NoneType"),
    ],
)
def test_rerank_refuses_bad_input(folder: Path, changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"topics": {"q1": "oven"}, "run": {"q1": {"d1": 1.0}}, "corpus": DOCS}
    with pytest.raises(DataError, match=message):
        rerank(**{**good, **changes}, mono=str(folder / "mono"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k0": 0}, "k is k0"),
        ({"aggregation": "median"}, "aggregation: Input should be 'sum'"),
        ({"aggregation": "sample"}, "opponents"),
        ({"truncation": "none"}, "truncation: Input should be 'original'"),
        ({"truncation": "hf", "duo": "embedded:duo"}, "`hf` is defined for pairs only"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, not 'tpu'"),
        ({"dtype": "int8"}, "dtype must be auto or one of"),
    ],
)
def test_rerank_refuses_wrong_options(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rerank({"q1": "oven"}, {"q1": {"d1": 1.0}}, DOCS, **{"mono": str(folder / "mono"), **options})


def test_rerank_takes_no_options_beside_a_reranker(folder: Path) -> None:
    reranker = Reranker(str(folder / "mono"))
    with pytest.raises(ConfigError, match="`mono` is a Reranker, which has options of its own: give dtype to it"):
        rerank({"q1": "oven"}, {"q1": {"d1": 1.0}}, DOCS, mono=reranker, dtype="float32")
    with pytest.raises(ConfigError, match="`duo` is a Reranker of kind 'mono'"):
        rerank({"q1": "oven"}, {"q1": {"d1": 1.0}}, DOCS, mono=reranker, duo=reranker)

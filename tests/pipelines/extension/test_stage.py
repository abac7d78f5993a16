"""Cascades beyond BM25, monoBERT and duoBERT: by configuration, and with stages from outside the
package.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest

import beamrank
from beamrank.commit.schemas import candidates_table
from beamrank.config.cascade import PLUGINS, ConfiguredStage
from beamrank.config.load import load_config
from beamrank.config.stages import FirstStageConfig, StageConfig
from beamrank.errors import ConfigError
from beamrank.ranking.rankings import Rankings, rerank, rows_by_query
from models.stages.base import Key, Stage
from models.stages.compute import Computed, ShardInputs
from models.stages.first_stage import FirstStage
from models.stages.mono import ScoreMono
from models.stages.planning import Planning
from pipelines.plan.estimate import estimate
from tests.pipelines.runners.test_engines import get_engine
from tests.support.checkpoints import LETTERS, save_tiny
from tests.support.plugins import install
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import assert_same_bytes, read_trec, run_bytes
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection, small_cascade


def _hash(query_id: str, doc_id: str) -> float:
    return hashlib.sha256(f"{query_id} {doc_id}".encode()).digest()[0] / 256


class ListwiseConfig(StageConfig):
    """A listwise re-ranker."""

    window: int = 2


@dataclass(frozen=True, kw_only=True)
class Listwise(Stage):
    """Ranks windows of the head, from the last to the first; each overlaps the one before by one
    doc.
    """

    type_name = "windowed"
    has_scores = False
    section = ListwiseConfig
    schema = pa.schema({"query_id": pa.string(), "doc_id": pa.string(), "score": pa.float32()})

    window: Annotated[int, Key("{own_name}.window")]

    def compute(self, inputs: ShardInputs) -> Computed:
        rows = []
        for query_id, docs in sorted(self.received(inputs).items()):
            ranked = windows(query_id, list(docs), self.window)
            rows += [
                {"query_id": query_id, "doc_id": doc, "score": -place}
                for place, doc in enumerate(ranked)
            ]
        return Computed(pa.Table.from_pylist(rows, schema=self.schema), {"windows": len(rows)})

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        assert before is not None
        doc_ids, scores, rows = (
            part["doc_id"].to_pylist(),
            part["score"].to_numpy(),
            rows_by_query(part),
        )
        nothing = slice(0, 0)
        return {
            query_id: rerank(
                query_id, ranking, doc_ids[found], scores[found].astype(np.float64), self.k, k
            )
            for query_id, ranking in before.items()
            for found in (rows.get(query_id, nothing),)
        }


def windows(query_id: str, docs: list[str], size: int) -> list[str]:
    """The order of a listwise re-ranker."""
    for start in range(max(0, len(docs) - size), -1, -1):
        head = docs[start : start + size]
        docs[start : start + size] = sorted(head, key=lambda doc: -_hash(query_id, doc))
    return docs


class DenseConfig(FirstStageConfig):
    """Nearest docs by a vector."""

    buckets: int = 26


@dataclass(frozen=True, kw_only=True)
class Dense(FirstStage):
    """The docs whose counts of letters are nearest to the topic's."""

    type_name = "letters"
    section = DenseConfig

    corpus_digest: Annotated[str, Key("corpus.path")]
    buckets: Annotated[int, Key("letters.buckets")]
    path: str

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        corpus = {"corpus_digest": planning.corpus_digest, "path": planning.config.corpus.path}
        return super().settings(own, planning) | corpus

    def compute(self, inputs: ShardInputs) -> Computed:
        docs = {
            each["id"]: each["contents"]
            for each in map(json.loads, Path(self.path).read_text().splitlines())
        }
        found = [nearest(text, docs, self.k) for _, text in inputs.topics]
        doc_ids = [[doc_id for doc_id, _ in rows] for rows in found]
        scores = [[score for _, score in rows] for rows in found]
        query_ids = [topic.query_id for topic in inputs.topics]
        return self.computed(inputs.topics, candidates_table(query_ids, doc_ids, scores))


def _vector(text: str) -> np.ndarray:
    return np.array([text.count(chr(97 + letter)) for letter in range(26)], np.float32)


def nearest(query: str, docs: dict[str, str], k: int) -> list[tuple[str, float]]:
    """The docs of the largest cosine."""
    vectors = np.stack([_vector(text) for text in docs.values()])
    vector = _vector(query)
    scores = vectors @ vector / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector))
    return [
        (list(docs)[place], float(scores[place]))
        for place in np.argsort(-scores, kind="stable")[:k]
    ]


@dataclass(frozen=True, kw_only=True)
class Pointwise(ScoreMono):
    """A stage with a cross-encoder, which is no mono by its name."""

    type_name = "pointwise"


@pytest.fixture
def plugins(tmp_path, monkeypatch) -> None:
    kinds = {"windowed": Listwise, "letters": Dense, "pointwise": Pointwise}
    entries = {kind: f"{__name__}:{stage.__name__}" for kind, stage in kinds.items()}
    install(tmp_path / "package", monkeypatch, PLUGINS, **entries)


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    """A given run, small mono, large mono, and duo."""
    made = small_cascade(tmp_path)
    save_tiny(tmp_path / "large", LETTERS, seed=9, type_vocab_size=2)
    _cascade(made, {"mono": {"checkpoint": "./mono", "k": 7}}, *_LATER)
    return made


_LATER = (
    {"mono": {"checkpoint": "./large", "k": 5, "name": "large"}},
    {"duo": {"checkpoint": "./duo", "k": 3}},
)


def _cascade(made: SmallCollection, *stages: dict[str, Any]) -> None:
    made.keys = {key: value for key, value in made.keys.items() if key not in ("mono", "duo")} | {
        "cascade": [*stages]
    }


def _run_orders(output: Path) -> dict[str, dict[str, list[str]]]:
    return {path.stem: read_trec(path) for path in (output / "runs").glob("*.trec")}


def _by_score(docs: list[str], scores: Sequence[float]) -> list[str]:
    return [docs[place] for place in np.argsort(-np.array(scores), kind="stable")]


def _papers_loop(folder: Path, query_id: str) -> dict[str, list[str]]:
    """H0 -> H1 -> H1' -> H2, each re-ranking the first k of the one before."""
    options: Any = {"max_length": 64, "max_query_length": 16, "dtype": "float32", "device": "cpu"}
    text, docs = TOPICS[query_id], CANDIDATES[query_id]
    found = {"candidates": docs}
    for name, k in (("mono", 7), ("large", 5)):
        reranker = beamrank.Reranker(str(folder / name), **options)
        docs = (
            _by_score(docs[:k], reranker.score([(text, DOCS[doc]) for doc in docs[:k]]).tolist())
            + docs[k:]
        )
        found[name] = docs
    duo = beamrank.Reranker(str(folder / "duo"), kind="duo", **options)
    head = docs[:3]
    pairs = [
        (text, DOCS[first], DOCS[second]) for first in head for second in head if first != second
    ]
    p = 1 / (1 + np.exp(-duo.score(pairs).astype(np.float64)))
    found["duo-sum"] = _by_score(head, p.reshape(3, 2).sum(axis=1).tolist()) + docs[3:]
    return found


def test_cascade_by_configuration_equals_the_papers_loop(collection):
    result = beamrank.run(str(collection.path))
    assert list(result.runs) == ["candidates", "mono", "large", "duo-sum"]
    assert list(result.measures) == list(result.runs)
    orders = _run_orders(collection.output)
    for query_id in ("q0", "q3", "q7"):
        assert {name: order[query_id] for name, order in orders.items()} == _papers_loop(
            collection.folder, query_id
        )


def test_cascade_in_memory_has_the_runs_of_the_job(collection, plugins):
    """With segments, and with a stage from outside the package."""
    segments = {"length_tokens": 20, "stride_tokens": 10, "limit": 3}
    collection.keys["cascade"][1] = {"mono": {**_LATER[0]["mono"], "segments": segments}}
    collection.keys["cascade"].append({"windowed": {"k": 3}})
    collection.run()
    candidates = {
        query_id: {doc: -float(rank) for rank, doc in enumerate(docs)}
        for query_id, docs in CANDIDATES.items()
    }
    stages = [
        {kind: {**settings, "checkpoint": str(collection.folder / settings["checkpoint"])}}
        for entry in collection.keys["cascade"][:-1]
        for kind, settings in entry.items()
    ]
    stages.append(collection.keys["cascade"][-1])
    options: Any = {"max_length": 64, "max_query_length": 16, "dtype": "float32", "device": "cpu"}
    found = beamrank.rerank(TOPICS, candidates, DOCS, cascade=stages, **options)
    orders = _run_orders(collection.output)
    assert list(found) == ["mono", "large", "duo-sum", "windowed"]
    for name, run in found.items():
        assert {query_id: list(docs) for query_id, docs in run.items()} == orders[name]


@pytest.mark.slow
def test_stage_of_a_package_scores_with_a_checkpoint_of_ours(collection, plugins, tmp_path):
    settings = {"checkpoint": "./mono", "k": 7}
    orders = []
    for kind in ("mono", "pointwise"):
        _cascade(collection, {kind: settings})
        result = beamrank.run(str(collection.path), output=tmp_path / f"of-{kind}")
        orders.append(read_trec(Path(result.runs[kind])))
    assert orders[0] == orders[1]


def test_listwise_stage_after_duo_ranks_windows_of_the_head(collection, plugins, tmp_path):
    mono = {"mono": {"checkpoint": "./mono", "k": 7}}
    _cascade(collection, mono, _LATER[1], {"windowed": {"k": 3, "window": 2}})
    result = beamrank.run(str(collection.path))
    assert list(result.runs) == ["candidates", "mono", "duo-sum", "windowed"]
    orders = _run_orders(collection.output)
    for query_id, before in orders["duo-sum"].items():
        assert orders["windowed"][query_id] == windows(query_id, before[:3], 2) + before[3:]
    for arguments in (
        ["verify"],
        ["status"],
        ["gc", "--dry-run"],
        ["inspect"],
        ["inspect", "--query", "q0"],
    ):
        assert beamrank_here(*arguments, collection.output).returncode == 0, arguments
    succeed("report", collection.output, "--no-texts", "--output", tmp_path / "report")
    assert "windowed" in (tmp_path / "report/report.html").read_text()
    embedded = beamrank.run(str(collection.path), runner="embed", output=tmp_path / "embed")
    assert run_bytes(Path(embedded.output)) == run_bytes(collection.output)


@pytest.mark.slow
@pytest.mark.maven
def test_stages_of_a_package_and_of_ours_have_the_same_bytes_on_flink(
    collection, plugins, tmp_path
):
    """A dense first stage, small mono, large mono, duo, and a listwise stage."""
    get_engine("flink")
    collection.keys.pop("candidates")
    collection.keys["cascade"] = [
        {"letters": {"k": 9}},
        *collection.keys["cascade"],
        {"windowed": {"k": 3}},
    ]
    result = beamrank.run(str(collection.path))
    assert list(result.runs) == ["letters", "mono", "large", "duo-sum", "windowed"]
    on_flink = beamrank.run(str(collection.path), runner="flink", output=tmp_path / "flink")
    assert_same_bytes(Path(on_flink.output), collection.output)


def _dense_first(folder: Path) -> SmallCollection:
    made = SmallCollection(folder, letters={"k": 6}).with_models()
    made.write("given.trec", [])
    return made


def test_first_stage_runs_with_its_own_section(plugins, tmp_path):
    made = _dense_first(tmp_path)
    estimated = {stage.stage: stage for stage in estimate(made.config).stages}
    assert estimated["mono"].inferences == 10 * 6
    made.run()
    assert {*_run_orders(made.output)} == {"letters", "mono", "duo-sum"}
    paths = succeed("aggregate", made.output, "--aggregation", "sum,min").stdout.split()
    assert [Path(path).name for path in paths] == ["duo-sum.trec", "duo-min.trec"]
    succeed("gc", "--dry-run", made.output)
    printed = succeed("plan", made.path, "--set", "letters.buckets=3").stdout
    assert "letters.buckets 26 -> 3: retrieve, tokenize, mono and duo are redone" in printed


def test_first_stage_leaves_out_what_its_section_excludes(plugins, tmp_path):
    made = _dense_first(tmp_path)
    found = {
        query_id: [doc for doc, _ in nearest(text, DOCS, 6)] for query_id, text in TOPICS.items()
    }
    (tmp_path / "pairs.txt").write_text(
        f"q0 {found['q0'][0]}\nq0 {found['q0'][2]}\nq1 {found['q1'][5]}\n"
    )
    keys = {"letters.exclude": str(tmp_path / "pairs.txt"), "mono": None, "duo": None}
    del found["q0"][2], found["q0"][0], found["q1"][5]
    assert read_trec(Path(beamrank.run(str(made.path), set=keys).runs["letters"])) == found


def test_first_stage_must_be_one_that_is_installed(request, tmp_path):
    made = _dense_first(tmp_path)
    with pytest.raises(ConfigError, match="letters: "):
        load_config(str(made.path))
    request.getfixturevalue("plugins")
    with pytest.raises(ConfigError, match=r"`candidates` .*`letters`"):
        load_config(str(made.path), ["candidates.run=given.trec"])


def test_plan_whose_plugin_is_missing_is_read_by_status_and_verify(
    collection, monkeypatch, tmp_path
):
    with monkeypatch.context() as installed:
        install(tmp_path / "package", installed, PLUGINS, windowed=f"{__name__}:Listwise")
        collection.keys["cascade"].append({"windowed": {"k": 3}})
        collection.run()
    assert "windowed" in succeed("status", collection.output).stdout
    done = beamrank_here("verify", collection.output)
    assert (done.returncode, "windowed" in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [{"mono": {"checkpoint": "./mono"}}, {"mono": {"checkpoint": "./large"}}],
            r"two .*'mono'",
        ),
        ([{"mono": {"checkpoint": "./mono", "name": "runs"}}], "'runs'"),
        ([{"mono": {"checkpoint": "./mono", "name": "é" * 51}}], r"102 bytes.*100"),
        (
            [
                {"mono": {"checkpoint": "./mono", "k": 2}},
                {"deeper": {"name": "other", "k": 5, "inferences": 9}},
                {"mono": {"checkpoint": "./mono", "name": "other-gaps"}},
            ],
            "other-gaps",
        ),
        ([{"mono": {"checkpoint": "./mono", "name": "corpus"}}], "'corpus'"),
        ([{"windowed": {"k": 3}}], "'windowed'"),
        (
            [{"mono": {"checkpoint": "./mono", "k": 3}}, {"duo": {"checkpoint": "./duo", "k": 4}}],
            r"duo\.k 4 ",
        ),
        ([{"mono": {"checkpoint": "./mono", "depth": 3}}], r"mono.depth: "),
        (["mono", 3], "cascade"),
    ],
)
def test_cascade_that_cannot_be_is_refused(collection, stages, message):
    _cascade(collection, *stages)
    with pytest.raises(ConfigError, match=message):
        beamrank.run(str(collection.path))


def test_stage_before_the_first_model_chooses_which_docs_are_scored(collection, plugins):
    """Its best docs can be any of those that it received: all of them have tokens."""
    _cascade(collection, {"windowed": {"k": 7}}, {"mono": {"checkpoint": "./mono", "k": 3}})
    collection.run()
    orders = _run_orders(collection.output)
    for query_id, candidates in CANDIDATES.items():
        chosen = windows(query_id, candidates[:7], 2)
        assert orders["windowed"][query_id] == chosen + candidates[7:]
        assert sorted(orders["mono"][query_id][:3]) == sorted(chosen[:3])
        assert len(orders["mono"][query_id]) == len(candidates)


def test_scores_are_not_combined_with_the_ranks_of_a_listwise_stage(collection, plugins):
    mono = {"checkpoint": "./mono", "k": 3, "combine": {}}
    _cascade(collection, {"windowed": {"k": 7}}, {"mono": mono})
    with pytest.raises(ConfigError, match=r"mono\.combine: .*windowed.*scores"):
        beamrank.run(str(collection.path))


def test_plan_names_a_stage_that_was_added_and_a_checkpoint_that_changed(collection, plugins):
    collection.run()
    collection.keys["cascade"].append({"windowed": {"k": 3}})
    assert "windowed none -> windowed" in succeed("plan", collection.path).stdout
    collection.keys["cascade"].pop()
    said = succeed("plan", collection.path, "--set", "large.checkpoint=./mono").stdout
    assert "large.checkpoint" in said
    assert "none -> none" not in said


def test_first_stage_of_ours_may_be_the_first_of_the_list(collection):
    collection.run()
    given = collection.keys.pop("candidates")
    collection.keys["cascade"].insert(0, {"candidates": given})
    succeed("plan", collection.path)
    assert collection.config == type(collection.config).model_validate(
        {**collection.config.model_dump(), "output": collection.config.output}
    )
    collection.run(output=collection.folder / "listed")
    assert run_bytes(collection.folder / "listed") == run_bytes(collection.output)


def test_stage_of_the_list_is_left_out_by_null(collection):
    collection.run("large=null")
    assert {*_run_orders(collection.output)} == {"candidates", "mono", "duo-sum"}


def test_stage_that_runs_on_its_own_is_named_by_any_equal_string(collection):
    collection.run()
    again = beamrank.run(str(collection.path), stage="".join(["ru", "ns"]))
    assert list(again.runs) == ["candidates", "mono", "large", "duo-sum"]


@pytest.mark.parametrize("name", ["duo-sum", "duo-min", "duo-sum-k2"])
def test_run_that_another_stage_gives_is_no_name(collection, name):
    _cascade(collection, {"mono": {"checkpoint": "./mono", "k": 5, "name": name}}, _LATER[1])
    with pytest.raises(ConfigError, match=f"'?{name}"):
        beamrank.run(str(collection.path))

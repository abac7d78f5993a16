"""A first stage from outside the package, one class and one entry point, used in a whole run."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

import beamrank
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.config.cascade import PLUGINS, ConfiguredStage
from beamrank.config.run import load_config
from beamrank.config.stages import FirstStageConfig
from beamrank.errors import ConfigError
from beamrank.join.schemas import candidates_table
from models.stages.base import Key
from models.stages.first_stage import FirstStage
from models.stages.planning import Planning
from pipelines.plan.estimate import estimate
from tests.support.plugins import install
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec
from tests.support.small_collection import SmallCollection


class CorpusOrderConfig(FirstStageConfig):
    """The docs of the corpus in their order, from the doc `first` on."""

    first: int = 0


@dataclass(frozen=True, kw_only=True)
class CorpusOrder(FirstStage):
    """Gives each topic the same docs."""

    type_name = "corpus_order"
    section = CorpusOrderConfig

    corpus_digest: Annotated[str, Key("corpus.path")]
    first: Annotated[int, Key("corpus_order.first")]
    path: str

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        corpus = {"corpus_digest": planning.corpus_digest, "path": planning.config.corpus.path}
        return super().settings(own, planning) | corpus

    def run(self, task: ShardTask) -> Receipt:
        start = time.monotonic()
        doc_ids = [json.loads(line)["id"] for line in Path(self.path).read_text().splitlines()]
        query_ids = [topic.query_id for topic in task.topics]
        docs = doc_ids[self.first : self.first + self.k]
        return self.commit(task, candidates_table(query_ids, [docs] * len(query_ids)), start)


@pytest.fixture
def corpus_order(tmp_path, monkeypatch) -> None:
    install(tmp_path / "package", monkeypatch, PLUGINS, corpus_order=f"{__name__}:CorpusOrder")


@pytest.fixture
def config(tmp_path) -> Path:
    """A small collection whose first stage is the toy."""
    collection = SmallCollection(tmp_path, corpus_order={"k": 6, "first": 2}).with_models()
    collection.write("given.trec", [])
    return collection.path


def test_first_stage_runs_with_its_own_section(config, corpus_order) -> None:
    settings = load_config(str(config))
    estimated = {stage.stage: stage for stage in estimate(settings).stages}
    assert (estimated["retrieve"].bytes, estimated["mono"].inferences) == (10 * 6 * 12, 10 * 6)
    result = beamrank.run(str(config), runner="embed")
    assert list(result.runs) == ["corpus_order", "mono", "duo-sum"]
    first = read_trec(Path(result.runs["corpus_order"]))
    assert set(map(tuple, first.values())) == {("d2", "d3", "d4", "d5", "d6", "d7")}
    for query_id, doc_ids in read_trec(Path(result.runs["duo-sum"])).items():
        assert sorted(doc_ids) == first[query_id]
    aggregated = ["duo-sum.trec", "duo-min.trec"]
    paths = beamrank_here("aggregate", settings.output, "--aggregation", "sum,min").stdout.split()
    assert [Path(path).name for path in paths] == aggregated
    for arguments in (["verify"], ["status"], ["gc", "--dry-run"]):
        assert beamrank_here(*arguments, settings.output).returncode == 0
    printed = beamrank_here("plan", config, "--set", "corpus_order.first=3").stdout
    assert "corpus_order.first 2 -> 3: retrieve, tokenize, mono and duo are redone" in printed


def test_first_stage_leaves_out_what_its_section_excludes(config, corpus_order) -> None:
    (config.parent / "pairs.txt").write_text("q0 d2\nq0 d4\nq1 d29\n")
    keys = {"corpus_order.exclude": str(config.parent / "pairs.txt"), "mono": None, "duo": None}
    found = read_trec(Path(beamrank.run(str(config), set=keys).runs["corpus_order"]))
    assert found["q0"] == ["d3", "d5", "d6", "d7"]
    assert found["q1"] == found["q2"] == ["d2", "d3", "d4", "d5", "d6", "d7"]


def test_first_stage_that_is_not_installed_is_an_unknown_key(config) -> None:
    with pytest.raises(ConfigError, match="corpus_order: unknown key"):
        load_config(str(config))


def test_first_stage_must_be_one(config, corpus_order) -> None:
    with pytest.raises(ConfigError, match=r"`candidates` and `corpus_order` exclude each other"):
        load_config(str(config), ["candidates.run=given.trec"])

"""`beamrank status --format prometheus` and `run --metrics FILE`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from beamrank.commit.metrics import metrics
from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_status
from tests import ROOT
from tests.support.processes import refused, succeed
from tests.support.small_collection import SmallCollection, small_cascade


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        for sample in family.samples:
            yield sample.labels["stage"], sample.name, sample.value


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> SmallCollection:
    made = small_cascade(tmp_path_factory.mktemp("small"))
    succeed("run", made.path, "--metrics", made.folder / "metrics.prom")
    return made


def test_metrics_of_a_finished_run_are_those_of_status(collection: SmallCollection) -> None:
    text = succeed("status", collection.output, "--format", "prometheus").stdout
    values = {(stage, name): value for stage, name, value in _samples(text)}
    plan = read_plan(str(collection.output))
    for status in read_status(plan):
        assert values[status.stage, "beamrank_shards"] == len(plan.shards)
        assert values[status.stage, "beamrank_done_shards"] == status.done
        assert values[status.stage, "beamrank_bad_rows"] == status.bad_rows
        assert values.get((status.stage, "beamrank_inferences"), 0) == status.inferences
        assert values.get((status.stage, "beamrank_tokens")) == status.tokens
        assert values[status.stage, "beamrank_last_commit_timestamp_seconds"] > 1.7e9
    assert values["mono", "beamrank_inferences"] > 0


def test_metrics_file_of_a_run_holds_the_same(collection: SmallCollection) -> None:
    text = succeed("status", collection.output, "--format", "prometheus").stdout
    assert (collection.folder / "metrics.prom").read_text() == text


def test_metrics_of_an_unfinished_run_count_its_receipts(tmp_path: Path) -> None:
    made = small_cascade(tmp_path)
    succeed("run", made.path, "--stage", "retrieve", "--metrics", tmp_path / "metrics.prom")
    samples = [*_samples(metrics(read_plan(str(made.output))))]
    done = {stage: value for stage, name, value in samples if name == "beamrank_done_shards"}
    assert [done["retrieve"], done["mono"], done["duo"]] == [4, 0, 0]


def test_every_metric_is_in_the_docs(collection: SmallCollection) -> None:
    page = (ROOT / "docs/reference/json.md").read_text().partition("## Metrics")[2]
    named = set(re.findall(r"`(beamrank_\w+)`", page))
    names = {name for _, name, _ in _samples(metrics(read_plan(str(collection.output))))}
    assert names - named == set()


def test_metrics_file_is_of_one_launcher(collection: SmallCollection, tmp_path: Path) -> None:
    arguments = ("--only", "0/2", "--metrics", tmp_path / "metrics.prom")
    assert "--metrics" in refused("run", collection.path, *arguments, code=2)
    assert not (tmp_path / "metrics.prom").exists()


def test_metrics_file_that_cannot_be_written_ends_the_run_at_once(
    collection: SmallCollection, tmp_path: Path
) -> None:
    output = tmp_path / "new"
    file = "/proc/none/metrics.prom"
    arguments = ("--output", output, "--metrics", file)
    assert file in refused("run", collection.path, *arguments, code=3)
    assert not output.exists()

"""Runs after other ones: random changes, resumed or reused, have the bytes of a fresh run; what
cannot be reused is named.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit.owner import launched
from beamrank.commit.plan import read_plan
from beamrank.commit.shards import ShardTask
from beamrank.errors import BeamrankError
from beamrank.storage.documents import checked_json, checked_values
from pipelines.console.progress import ConsoleProgress
from pipelines.execute import run
from pipelines.plan.make_plan import make_plan
from pipelines.plan.reuse import Reuse
from tests.support.changed_files import flip_bit
from tests.support.changed_runs import check
from tests.support.runs import assert_same_bytes, scored_and_reused
from tests.support.small_collection import SmallCollection, small_cascade
from tests.support.tiers import slow_but


@pytest.mark.parametrize("seed", slow_but(1, range(12)))
def test_any_change_resumed_or_reused_has_the_bytes_of_a_fresh_run(seed, tmp_path) -> None:
    """Nothing is scored that an earlier part answers."""
    check(seed, tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of an undisturbed run; a collection of a test has the same files elsewhere."""
    return Path(small_cascade(tmp_path_factory.mktemp("first")).run().plan.output)


@pytest.fixture
def collection(tmp_path: Path) -> SmallCollection:
    return small_cascade(tmp_path)


def _reused(collection: SmallCollection, *outputs: Path) -> tuple[bool, list[str]]:
    """Whether mono reuses parts in a run into the first of some outputs, and why not others."""
    plan, lines = collection.plan(output=outputs[0]).plan, list[str]()
    tasks = [ShardTask(plan.folder("mono"), shard, "") for shard in range(len(plan.shards))]
    reuse = Reuse(plan, [str(output) for output in outputs])
    given = reuse.given_to(plan.stage("mono"), tasks, lines.append)
    return any(task.reusable for task in given), lines


def _with(**changes: Any) -> Callable[[Path], None]:
    """Writes a document with other values."""

    def write(path: Path) -> None:
        path.write_bytes(checked_json({**checked_values(path.read_bytes()), **changes}))

    return write


_UNFINISHED = "is not finished, or files of it are missing"


@pytest.mark.parametrize(
    ("pattern", "spoil", "said"),
    [
        ("mono/part-*", Path.unlink, f"mono {_UNFINISHED}"),
        ("mono/manifest-*", Path.unlink, f"mono {_UNFINISHED}"),
        ("tokenize-*/part-*", Path.unlink, f"tokenize-.* {_UNFINISHED}"),
        ("plan-*", _with(engine_version=1), "was written by engine version 1, "),
        ("plan-*", flip_bit, "cannot be read: "),
        ("topics-*", Path.unlink, "cannot be read: topics-.* is missing"),
        ("machines", shutil.rmtree, "a different processor unknown .here "),
        ("machines/*", _with(processor="Another"), "a different processor Another .here "),
        ("machines/*", _with(libraries={"torch": "0.1"}), "a different torch 0.1 .here "),
        ("../old", shutil.rmtree, "old: it holds no beamrank run"),
    ],
)
def test_earlier_output_that_cannot_be_used_is_named(
    collection, first, tmp_path, pattern, spoil, said
) -> None:
    old = Path(shutil.copytree(first, tmp_path / "old"))
    spoil(min(old.glob(pattern)))
    are_reused, lines = _reused(collection, tmp_path / "new", old)
    assert any(re.search(said, line) for line in lines), lines
    # A worker may be of the machine's kind.
    assert are_reused == pattern.startswith("machines")


def test_output_of_a_running_job_and_itself_are_named(collection, first, tmp_path) -> None:
    old, new = Path(shutil.copytree(first, tmp_path / "old")), tmp_path / "new"
    with launched(str(old), "0" * 64, "1" * 64):
        are_reused, (own, writing) = _reused(collection, new, old)
    assert f": {new} is this run's own output" in own
    assert re.search(rf": {old}: process {os.getpid()} on .* is writing it", writing)
    assert not are_reused


@pytest.mark.parametrize("stage", slow_but(1, ["mono", "tokenize-*"]))
def test_damaged_part_is_counted_and_its_scores_are_computed(
    collection, first, tmp_path, capsys, stage
) -> None:
    old = Path(shutil.copytree(first, tmp_path / "old"))
    flip_bit(sorted(old.glob(f"{stage}/part-*.parquet"))[0])
    run(str(collection.path), output=tmp_path / "new", reuse=[old], quiet=False)
    assert "mono: 1 parts of earlier runs could not be read" in capsys.readouterr().err
    lost = len(read_plan(str(old)).shards[0].topics) * 6
    assert scored_and_reused(tmp_path / "new")["mono"] == (lost, 60 - lost)
    assert_same_bytes(tmp_path / "new", first)


def test_other_settings_of_a_score_are_named_and_nothing_is_reused(
    collection, first, capsys
) -> None:
    shutil.copytree(first, collection.output)
    keys = {"dtype": "bfloat16", "input.max_length": 60, "input.truncation": "paper"}
    run(str(collection.path), output=collection.output, set=keys, quiet=False)
    assert "input.truncation, input.max_length, dtype differs\n" in capsys.readouterr().err
    assert {reused for _, reused in scored_and_reused(collection.output).values()} == {0}


def test_worker_of_another_kind_reuses_nothing_and_counts_the_parts(
    collection, first, tmp_path, monkeypatch
) -> None:
    """The launcher's machine may be of the kind of the earlier one while the worker's is not."""
    monkeypatch.setattr("models.stages.attempt.arithmetic_digest", lambda *_: "0" * 12)
    plan = collection.run(f"reuse=[{first}]", output=tmp_path / "new").plan
    assert scored_and_reused(plan.output) == {"mono": (60, 0), "duo": (60, 0)}
    manifest = plan.seal("mono")
    assert manifest is not None
    assert manifest.total("parts_of_other_machines") == 4


def test_reuse_is_not_in_the_digest_of_a_plan(collection, tmp_path) -> None:
    plans = [
        make_plan(
            collection.config.model_copy(update={"reuse": reuse}), ConsoleProgress(quiet=True)
        )
        for reuse in ((), ("gs://b/old",))
    ]
    assert plans[0].digest == plans[1].digest
    assert plans[0].config_digest == plans[1].config_digest


def test_reuse_of_a_url_with_credentials_is_refused(collection) -> None:
    with pytest.raises(BeamrankError, match=r"--reuse.*credential"):
        run(str(collection.path), reuse=["s3://key:secret@bucket/out"])
    assert "machines" not in {path.name for path in collection.output.glob("*")}

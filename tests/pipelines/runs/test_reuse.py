"""Runs that reuse scores of earlier ones: the parts and runs are those of a run into an empty
output.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit.owner import launched
from beamrank.commit.plan import read_plan
from beamrank.config.load import load_config
from beamrank.errors import BeamrankError
from beamrank.storage.documents import checked_json, checked_values
from models.stages.attempt import run_shard
from models.stages.core import open_stage
from models.stages.scoring import ModelStage
from pipelines.console.progress import ConsoleProgress
from pipelines.execute import run
from pipelines.launcher import Launcher
from pipelines.plan.estimate import estimate
from pipelines.plan.make_plan import make_plan
from tests.support.changed_files import flip_bit
from tests.support.checkpoints import save_tiny
from tests.support.runs import assert_as_fresh, assert_same_bytes, scored_and_reused
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection, small_cascade
from tests.support.tiers import slow_but

Counts = tuple[int, int]
SEGMENTS = {"length_tokens": 20, "stride_tokens": 10, "limit": 3}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of an undisturbed run; a collection of a test has the same files elsewhere."""
    made = small_cascade(tmp_path_factory.mktemp("first"))
    return _run(made, made.output)


@pytest.fixture
def collection(tmp_path: Path) -> SmallCollection:
    return small_cascade(tmp_path)


def _run(collection: SmallCollection, output: Path | str, **keys: Any) -> Path:
    run(str(collection.path), output=output, set=keys)
    return Path(output)


def _assert_as_fresh(collection: SmallCollection, output: Path, **keys: Any) -> dict[str, Counts]:
    """A run gives the bytes of one into an empty folder, within the counts of `plan`; returns its
    own.
    """
    overrides = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
    predicted = estimate(load_config(str(collection.path), overrides, str(output))).stages
    _run(collection, output, **keys)
    shutil.rmtree(collection.folder / "fresh", ignore_errors=True)
    fresh = _run(
        collection,
        collection.folder / "fresh",
        **{key: keys[key] for key in keys if key != "reuse"},
    )
    assert_as_fresh(output, fresh)
    found = scored_and_reused(output)
    for stage in predicted:
        if stage.stage in found and stage.remaining_shards:
            assert sum(found[stage.stage]) <= stage.remaining_inferences, stage
    return found


def _write_topics(collection: SmallCollection, topics: Mapping[str, str]) -> None:
    collection.write("topics.tsv", (f"{query_id}\t{text}" for query_id, text in topics.items()))


def _write_docs(collection: SmallCollection, docs: Mapping[str, str]) -> None:
    lines = (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in docs.items())
    collection.write("corpus.jsonl", lines)


def _with_topics(collection: SmallCollection) -> None:
    """One topic is new, one is gone, one has another text, and one has the text of another."""
    topics = {query_id: text for query_id, text in TOPICS.items() if query_id != "q3"}
    _write_topics(
        collection, {**topics, "q5": "heron inlet", "q7": TOPICS["q8"], "q99": "amber fjord"}
    )
    collection.given_run({**CANDIDATES, "q99": CANDIDATES["q1"]})
    collection.with_qrels({"q1": CANDIDATES["q1"][0]})


def _with_docs(collection: SmallCollection) -> None:
    """Two docs have changed texts, two have each other's, and one has the text of another."""
    texts = {
        "d3": "cedar delta",
        "d4": DOCS["d4"] + " jetty",
        "d5": DOCS["d6"],
        "d6": DOCS["d5"],
        "d7": DOCS["d8"],
    }
    _write_docs(collection, {**DOCS, **texts})


def _with_candidates(collection: SmallCollection) -> None:
    """Candidates are in another order; a topic has one other doc, and another none."""
    others = {query_id: doc_ids[::-1] for query_id, doc_ids in CANDIDATES.items()}
    new = next(doc_id for doc_id in DOCS if doc_id not in CANDIDATES["q2"])
    collection.given_run(
        {**{key: others[key] for key in others if key != "q4"}, "q2": [new, *others["q2"][1:]]}
    )


def _unchanged(_: SmallCollection) -> None:
    """The files stay."""


@pytest.mark.parametrize(
    ("change", "keys", "expected"),
    slow_but(
        2,
        [
            pytest.param(_with_docs, {}, {"mono": None, "duo": None}, id="docs"),
            pytest.param(
                _with_topics,
                {"mono.k": 8, "duo.k": 4, "shards": 2},
                {"mono": None, "duo": None},
                id="all",
            ),
            pytest.param(_with_topics, {}, {"mono": None, "duo": None}, id="topics"),
            pytest.param(
                _unchanged, {"mono.k": 9}, {"mono": (30, 60), "duo": None}, id="mono.k larger"
            ),
            pytest.param(
                _unchanged, {"mono.k": 3}, {"mono": (0, 30), "duo": None}, id="mono.k smaller"
            ),
            pytest.param(_unchanged, {"duo.k": 2}, {"duo": (0, 20)}, id="duo.k smaller"),
            pytest.param(_unchanged, {"duo.k": 5}, {"duo": (140, 60)}, id="duo.k larger"),
            pytest.param(_unchanged, {"shards": 3}, {"mono": (0, 60), "duo": (0, 60)}, id="shards"),
            pytest.param(
                _unchanged,
                {"duo.aggregation": "sample", "duo.opponents": 1},
                {"duo": (0, 30)},
                id="fewer opponents",
            ),
            pytest.param(
                _with_candidates, {"mono.k": 9}, {"mono": (27, 54), "duo": None}, id="candidates"
            ),
        ],
    ),
)
def test_run_reuses_what_did_not_change(
    collection: SmallCollection,
    first: Path,
    change: Callable[[SmallCollection], None],
    keys: dict[str, Any],
    expected: dict[str, Counts | None],
) -> None:
    shutil.copytree(first, collection.output)
    change(collection)
    found = _assert_as_fresh(collection, collection.output, **keys)
    for stage, counts in expected.items():
        assert found[stage] == counts if counts else found[stage][1] > 0, stage


@pytest.mark.slow
def test_draws_of_other_opponents_and_segments_are_reused_as_far_as_they_are_the_same(
    collection,
) -> None:
    sample = {"duo.aggregation": "sample", "duo.opponents": 1}
    _run(collection, collection.output, **sample)
    found = _assert_as_fresh(collection, collection.output, **sample, **{"duo.seed": 7})
    assert 0 < found["duo"][1] < 30
    found = _assert_as_fresh(collection, collection.output, **{"mono.segments": SEGMENTS})
    assert found["mono"][0] > 0
    found = _assert_as_fresh(
        collection, collection.output, **{"mono.segments": {**SEGMENTS, "limit": 2}}
    )
    assert found["mono"][0] == 0
    found = _assert_as_fresh(
        collection, collection.output, **{"mono.segments": {**SEGMENTS, "pooling": "mean"}}
    )
    assert found["duo"][1] > 0


def test_what_was_reused_stays_when_the_earlier_output_is_deleted(
    collection, first, tmp_path
) -> None:
    old = Path(shutil.copytree(first, tmp_path / "old"))
    _with_docs(collection)
    reuse = [str(old)]
    found = _assert_as_fresh(collection, tmp_path / "new", reuse=reuse)
    assert found["mono"][1] > 0
    assert found["duo"][1] > 0
    shutil.rmtree(old)
    # Neither does a later run need it: the new parts hold what came from it.
    third = _run(
        collection, tmp_path / "third", reuse=[*reuse, str(tmp_path / "new")], **{"mono.k": 5}
    )
    assert scored_and_reused(third)["mono"] == (0, 50)
    assert_same_bytes(third, _run(collection, tmp_path / "fourth", **{"mono.k": 5}))


def test_killed_shards_of_an_earlier_plan_are_reused(collection) -> None:
    """In this output, a receipt counts before the stage is sealed, as it does for a run that
    resumes.
    """
    planned = collection.plan()
    planned.plan.publish()
    launcher = Launcher(planned.plan, planned.config, _quiet())
    launcher.run(planned.plan.stages[:2])
    record = planned.plan.stage("mono")
    tasks = planned.plan.tasks(record, [planned.plan.seal(name) for name in record.inputs])
    mono = open_stage(planned.plan.stages, "mono")
    assert isinstance(mono, ModelStage)
    run_shard(mono, tasks[0])
    found = _assert_as_fresh(collection, collection.output, **{"mono.k": 5})
    assert found["mono"][1] == 5 * len(planned.plan.shards[0].topics)


def _quiet() -> ConsoleProgress:
    return ConsoleProgress(quiet=True)


def _with(**changes: Any) -> Callable[[Path], None]:
    """Writes a document with other values."""

    def write(path: Path) -> None:
        path.write_bytes(checked_json({**checked_values(path.read_bytes()), **changes}))

    return write


@pytest.mark.parametrize(
    ("pattern", "spoil", "said"),
    slow_but(
        2,
        [
            ("mono/part-*", Path.unlink, "mono is not finished, or files of it are missing"),
            (
                "machines/*",
                _with(libraries={"torch": "0.1"}),
                r"mono was computed with a different torch 0.1 .here ",
            ),
            (
                "plan-*",
                _with(engine_version=1),
                "was written by engine version 1, and this beamrank reads versions",
            ),
            ("plan-*", flip_bit, "cannot be read: "),
            ("topics-*", Path.unlink, "cannot be read: topics-.* is missing"),
            ("mono/manifest-*", Path.unlink, "mono is not finished, or files of it are missing"),
            (
                "tokenize-*/part-*",
                Path.unlink,
                "tokenize-.* is not finished, or files of it are missing",
            ),
            (
                "machines",
                shutil.rmtree,
                "mono was computed with a different processor unknown .here ",
            ),
            (
                "machines/*",
                _with(processor="Another"),
                "mono was computed with a different processor Another .here ",
            ),
            ("../old", shutil.rmtree, "old: it holds no beamrank run"),
        ],
    ),
)
def test_earlier_output_that_cannot_be_used_is_named_and_not_used(
    collection, first, tmp_path, capsys, pattern, spoil, said
) -> None:
    old = Path(shutil.copytree(first, tmp_path / "old"))
    spoil(min(old.glob(pattern)))
    run(str(collection.path), output=tmp_path / "new", reuse=[old], quiet=False)
    shown = capsys.readouterr().err
    assert re.search(rf"mono: not reused: .*{said}", shown), shown
    assert scored_and_reused(tmp_path / "new") == {"mono": (60, 0), "duo": (60, 0)}
    assert_same_bytes(tmp_path / "new", first)


@pytest.mark.parametrize("stage", ["mono", "tokenize-*"])
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


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"dtype": "bfloat16"}, "dtype differs"),
        ({"input.truncation": "paper"}, "input.truncation differs"),
        ({"input.max_length": 60}, "input.max_length differs"),
        (
            {"mono.checkpoint": "./other", "duo.checkpoint": "./other_duo"},
            "mono.checkpoint differs",
        ),
    ],
)
def test_other_settings_of_a_score_are_named_and_nothing_is_reused(
    collection, first, capsys, keys, said
) -> None:
    save_tiny(collection.folder / "other", _letters(collection), seed=9, type_vocab_size=2)
    save_tiny(collection.folder / "other_duo", _letters(collection), seed=10, type_vocab_size=3)
    keys = {
        key: str(collection.folder / value) if str(value)[:2] == "./" else value
        for key, value in keys.items()
    }
    shutil.copytree(first, collection.output)
    run(str(collection.path), output=collection.output, set=keys, quiet=False)
    assert f"{said}\n" in capsys.readouterr().err
    assert {reused for _, reused in scored_and_reused(collection.output).values()} == {0}


def _letters(collection: SmallCollection) -> list[str]:
    return (collection.folder / "mono" / "vocab.txt").read_text().split()


def test_output_of_a_running_job_and_itself_are_named_and_not_used(
    collection, first, tmp_path, capsys
) -> None:
    old = Path(shutil.copytree(first, tmp_path / "old"))
    with launched(str(old), "0" * 64, "1" * 64):
        run(
            str(collection.path),
            output=tmp_path / "new",
            reuse=[old, tmp_path / "new"],
            quiet=False,
        )
    shown = capsys.readouterr().err
    assert f"mono: not reused: {old}: process {os.getpid()} on " in shown
    assert "is writing it" in shown
    assert f"{tmp_path / 'new'} is this run's own output" in shown
    assert scored_and_reused(tmp_path / "new") == {"mono": (60, 0), "duo": (60, 0)}


def test_worker_of_another_kind_reuses_nothing_and_counts_the_parts(
    collection, first, tmp_path, monkeypatch
) -> None:
    """The launcher's machine may be of the kind of the earlier one while the worker's is not."""
    old = Path(shutil.copytree(first, tmp_path / "old"))
    monkeypatch.setattr("models.stages.attempt.arithmetic_digest", lambda *_: "0" * 12)
    new = _run(collection, tmp_path / "new", reuse=[str(old)])
    assert scored_and_reused(new) == {"mono": (60, 0), "duo": (60, 0)}
    manifest = read_plan(str(new)).seal("mono")
    assert manifest is not None
    assert manifest.total("parts_of_other_machines") == 4


def test_reuse_is_not_in_the_digest_of_a_plan(collection, tmp_path) -> None:
    plans = [
        make_plan(collection.config.model_copy(update={"reuse": reuse}), _quiet())
        for reuse in ((), ("gs://b/old",))
    ]
    assert plans[0].digest == plans[1].digest
    assert plans[0].config_digest == plans[1].config_digest


def test_reuse_of_a_url_with_credentials_is_refused(collection) -> None:
    with pytest.raises(BeamrankError, match=r"--reuse.*credential"):
        run(str(collection.path), reuse=["s3://key:secret@bucket/out"])
    assert "machines" not in {path.name for path in collection.output.glob("*")}

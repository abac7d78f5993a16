"""Inputs that change between the plan and the work: nothing is committed from what they hold
then.
"""

import pkgutil
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import apache_beam as beam
import pytest

from beamrank.commit.stage import StageRecord
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import list_units
from beamrank.notes import Silent
from beamrank.storage.digested import RewrittenError
from models.lucene.build import build_index
from models.stages.attempt import run_shard, shard_inputs
from models.stages.base import Stage
from models.stages.bm25 import RetrieveBm25
from models.stages.core import open_stage
from pipelines import passes
from pipelines.launcher import Launcher
from tests.support.changed_files import flip_bit
from tests.support.refusals import refuses
from tests.support.runs import PlannedRun, run_bytes
from tests.support.small_collection import SmallCollection, small_cascade
from tests.support.tiers import slow_but

CHANGED = "changed after its digest was taken"


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """The runs of a collection that nobody changed."""
    collection = small_cascade(tmp_path_factory.mktemp("small"))
    collection.run()
    return run_bytes(collection.output)


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    return small_cascade(tmp_path)


def _seals(collection: SmallCollection) -> set[str]:
    """The stages that are sealed."""
    return {path.parent.name.partition("-")[0] for path in collection.output.glob("*/manifest-*")}


def _assert_run_fails(run: PlannedRun, match: str, launcher: type[Launcher] = Launcher) -> None:
    with pytest.raises(BeamrankError, match=match):
        run.run(launcher)


def _change(path: Path) -> bytes:
    """Writes another content of the same size; returns the one of before."""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"amber", b"basil").replace(b" 18 given", b" 08 given"))
    assert path.read_bytes() != whole
    return whole


@pytest.mark.parametrize(
    ("name", "sealed"),
    [("corpus.jsonl", {"retrieve"}), ("given.trec", set())],
    ids=["corpus", "given run"],
)
def test_changed_input_seals_nothing_and_is_planned_again(
    collection, expected, name, sealed
) -> None:
    run = collection.plan()
    whole = _change(collection.folder / name)
    _assert_run_fails(run, rf"{name}.* changed after .*Run the same command again")
    assert _seals(collection) == sealed
    assert not list(collection.output.glob("tokenize-*/receipts/*"))
    (collection.folder / name).write_bytes(whole)
    run.run()
    assert run_bytes(collection.output) == expected
    _change(collection.folder / name)
    collection.run()
    assert run_bytes(collection.output) != expected


class _LateChange(Launcher):
    """Changes the corpus between the launcher's check and the scan."""

    def _new_pipeline(self, stage: StageRecord) -> beam.Pipeline:
        if stage.corpus_digest is not None:
            _change(Path(cast(RunConfig, self.config).corpus.path))
        return super()._new_pipeline(stage)


class _FlippedNeeds(Launcher):
    """Flips a bit of the needed docs before the scan."""

    def _new_pipeline(self, stage: StageRecord) -> beam.Pipeline:
        for needed in Path(self.plan.output).glob("tokenize-*/needed-*.bin"):
            flip_bit(needed)
        return super()._new_pipeline(stage)


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        (_LateChange, rf"corpus\.jsonl {CHANGED}"),
        (_FlippedNeeds, r"needed-\S+\.bin changed after it was written"),
    ],
)
def test_changed_corpus_before_the_scan_seals_nothing(collection, launcher, message) -> None:
    # With `drop`, a needed doc that is not found is not an error.
    collection.keys["on_missing_doc"] = "drop"
    _assert_run_fails(collection.plan(), message, launcher)
    assert _seals(collection) == {"retrieve"}
    assert not list(collection.output.glob("tokenize-*/receipts/*"))


def _during(
    change: Callable[[], object], undo: Callable[[], object], read: Callable[..., Any]
) -> Callable[..., Any]:
    """A reader that finds other files than before and after it."""

    def reader(*arguments: Any, **options: Any) -> Any:
        change()
        try:
            found = read(*arguments, **options)
            return iter(list(found)) if isinstance(found, Iterator) else found
        finally:
            undo()

    return reader


@pytest.fixture
def folder_corpus(collection) -> SmallCollection:
    """The corpus is a folder of two files."""
    docs = collection.folder / "docs"
    docs.mkdir()
    lines = (collection.folder / "corpus.jsonl").read_text().splitlines(keepends=True)
    (docs / "first.jsonl").write_text("".join(lines[:10]))
    (docs / "second.jsonl").write_text("".join(lines[10:]))
    collection.keys |= {"corpus": {"path": "docs", "format": "jsonl"}, "on_missing_doc": "drop"}
    return collection


@pytest.mark.parametrize("when", ["for good", "while the files are listed"])
def test_file_removed_from_the_corpus_seals_nothing(folder_corpus, when, monkeypatch) -> None:
    run = folder_corpus.plan()
    left, gone = folder_corpus.folder / "docs/second.jsonl", folder_corpus.folder / "gone"
    if when == "for good":
        left.rename(gone)
    else:
        listing = _during(lambda: left.rename(gone), lambda: gone.rename(left), list_units)
        monkeypatch.setattr(passes, "list_units", listing)
    _assert_run_fails(run, r"second\.jsonl (was removed|changed) after its digest was taken")
    assert _seals(folder_corpus) == {"retrieve"}


def test_file_added_to_the_corpus_seals_nothing(folder_corpus) -> None:
    run = folder_corpus.plan()
    (folder_corpus.folder / "docs/third.jsonl").write_text('{"id": "d99", "contents": "amber"}\n')
    _assert_run_fails(run, r"third\.jsonl was added to the corpus .*docs after the run was planned")
    assert _seals(folder_corpus) == {"retrieve"}


@pytest.mark.parametrize("kind", slow_but(1, ["mono", "duo"]))
@pytest.mark.parametrize("when", slow_but(1, ["scored", "loaded"]))
def test_changed_checkpoint_commits_nothing(collection, kind, when, monkeypatch) -> None:
    """Weights are mapped into memory, so what is written into their file reaches the model that
    scores.
    """
    run = collection.plan()
    weights = collection.folder / kind / "model.safetensors"
    content = weights.read_bytes()
    changed = content[: len(content) // 2] + bytes(len(content) - len(content) // 2)
    reader = "models.stages." + (
        "scoring.ScoringEngine" if when == "loaded" else f"{kind}.prepare_{kind}"
    )
    read = _during(
        lambda: weights.write_bytes(changed),
        lambda: weights.write_bytes(content),
        pkgutil.resolve_name(reader),
    )
    monkeypatch.setattr(reader, read)
    _assert_run_fails(run, rf"model\.safetensors {CHANGED}")
    assert kind not in _seals(collection)


def _copy_over(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("change", [Path.touch, _copy_over], ids=["touched", "copied"])
def test_touched_or_copied_inputs_are_the_same(collection, expected, change) -> None:
    run = collection.plan()
    for name in ("corpus.jsonl", "given.trec", "mono/model.safetensors", "duo/vocab.txt"):
        change(collection.folder / name)
    run.run()
    assert run_bytes(collection.output) == expected


def _overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _put_back(path: Path, content: bytes) -> None:
    if path.read_bytes() != content:
        path.write_bytes(content)


@pytest.mark.parametrize(
    "change", [Path.touch, _copy_over, _overwrite], ids=["touched", "copied", "overwritten"]
)
def test_input_that_is_written_once_while_it_is_read_is_read_again(
    collection, expected, change, monkeypatch
) -> None:
    run = collection.plan()
    calls = []

    def disturb_first_call(reader: str, path: Path) -> None:
        place = f"models.stages.{reader}"
        whole = pkgutil.resolve_name(place)
        disturbed = _during(
            partial(change, path), partial(_put_back, path, path.read_bytes()), whole
        )

        def read(*given: Any, **keys: Any) -> Any:
            calls.append(reader)
            return (disturbed if calls.count(reader) == 1 else whole)(*given, **keys)

        monkeypatch.setattr(place, read)

    disturb_first_call("given_run.RunReader.read", collection.folder / "given.trec")
    disturb_first_call("scoring.ScoringEngine", collection.folder / "mono/model.safetensors")
    for kind in ("mono", "duo"):
        disturb_first_call(f"{kind}.prepare_{kind}", collection.folder / kind / "model.safetensors")
    run.run()
    assert run_bytes(collection.output) == expected
    # Of four shards, one is scored again. Of three loads, one is after a change. The run's rows are
    # estimated twice, and read.
    assert Counter(calls) == {
        "given_run.RunReader.read": 3,
        "scoring.ScoringEngine": 3,
        "mono.prepare_mono": 5,
        "duo.prepare_duo": 5,
    }


# A local index.


@pytest.fixture(scope="module")
def indexed(tmp_path_factory) -> Path:
    """A folder with BM25 alone, whose index is built."""
    collection = SmallCollection(tmp_path_factory.mktemp("indexed"), shards=2).with_index(5)
    collection.plan()
    return collection.folder


@pytest.fixture
def searched(indexed: Path, tmp_path) -> SmallCollection:
    """A copy of it."""
    shutil.copytree(indexed, tmp_path, dirs_exist_ok=True)
    return SmallCollection(tmp_path, shards=2).with_index(5)


def _largest_index_file(collection: SmallCollection) -> Path:
    """Most of it is never read by a search."""
    return max((collection.folder / "index").glob("_*"), key=lambda path: path.stat().st_size)


@pytest.mark.jvm
def test_changed_index_seals_nothing(searched) -> None:
    run, file = searched.plan(), _largest_index_file(searched)
    flip_bit(file)
    _assert_run_fails(run, "index")
    assert _seals(searched) == set()
    with refuses(PreflightError, "damaged", file=file.name):
        searched.plan()
    flip_bit(file)
    searched.run()
    assert len(run_bytes(searched.output)["bm25.trec"].splitlines()) > 20


@pytest.mark.jvm
def test_changed_index_commits_only_earlier_shards(searched) -> None:
    plan = searched.plan().plan
    record, folder = plan.stage("retrieve"), plan.folder("retrieve")
    stage, digests = open_stage(plan.stages, record.name), plan.shard_digests(record, [])
    assert isinstance(stage, Stage)
    first, second = plan.tasks(record, [])
    run_shard(stage, first)
    flip_bit(_largest_index_file(searched))
    with pytest.raises(RewrittenError):
        stage.compute(shard_inputs(stage, second))
    assert set(folder.receipts(digests)) == {0}
    # The next attempt checks the content: still wrong, then right.
    with refuses(PreflightError, "changed"):
        stage.compute(shard_inputs(stage, second))
    flip_bit(_largest_index_file(searched))
    run_shard(stage, second)
    assert set(folder.receipts(digests)) == {0, 1}


@pytest.mark.jvm
def test_index_may_be_touched_or_get_another_mode_while_it_is_searched(searched) -> None:
    plan = searched.plan().plan
    record = plan.stage("retrieve")
    stage, file = open_stage(plan.stages, record.name), _largest_index_file(searched)
    assert isinstance(stage, RetrieveBm25)
    first, second = plan.tasks(record, [])
    index, _ = stage._open()
    with index.unchanged():
        file.chmod(0o600)
        (searched.folder / "link").hardlink_to(file)
    run_shard(stage, first)
    file.touch()
    with pytest.raises(RewrittenError, match=file.name):
        stage.compute(shard_inputs(stage, second))
    run_shard(stage, second)
    assert set(plan.folder("retrieve").receipts(plan.shard_digests(record, []))) == {0, 1}


@pytest.mark.jvm
def test_changed_corpus_leaves_no_index(tmp_path) -> None:
    collection = SmallCollection(tmp_path).with_index()
    corpus = collection.config.corpus

    class Change(Silent):
        changed = False

        def update(self, *_: Any) -> None:
            if not self.changed:
                self.changed = True
                _change(tmp_path / "corpus.jsonl")

    with refuses(DataError, "changed", file="corpus.jsonl"):
        build_index(corpus, str(tmp_path / "index"), 1, progress=Change())
    assert not (tmp_path / "index").exists()

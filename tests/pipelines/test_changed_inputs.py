"""Inputs that change between the plan and the work: nothing is committed from what they hold then."""

import os
import pkgutil
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamrank.config.run import RunConfig, load_config
from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import CorpusUnit, list_units
from beamrank.progress import Silent
from beamrank.stages.plan import Plan, StageSpec
from models.lucene.index import build_index
from pipelines import launcher
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher
from pipelines.output.run_files import write_runs
from pipelines.planning.make_plan import make_plan
from tests.support.cascades import run_bytes
from tests.support.faults import plan_small, write_small
from transforms import score
from transforms.join import TokenizeJob
from transforms.retrieve import RetrieveJob
from transforms.shards import ShardTask

QUIET = ConsoleProgress(quiet=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration that was run to its end."""
    folder = tmp_path_factory.mktemp("small")
    plan_small(write_small(folder)).run()
    return folder


@pytest.fixture
def collection(small: Path, tmp_path: Path) -> Path:
    """A copy of it without the output."""
    return Path(shutil.copytree(small, tmp_path / "copy", ignore=shutil.ignore_patterns("out")))


def _planned(folder: Path) -> tuple[RunConfig, Plan]:
    config = load_config(str(folder / "config.yaml"))
    plan = make_plan(config, QUIET)
    plan.publish()
    return config, plan


def _finish(config: RunConfig, plan: Plan, launcher: type[Launcher] = Launcher) -> dict[str, bytes]:
    launcher(plan, config, QUIET).run_all()
    write_runs(plan, config, QUIET)
    return run_bytes(Path(config.output))


def _seals(folder: Path) -> set[str]:
    """The stages that are sealed."""
    return {path.parent.name.partition("-")[0] for path in (folder / "out").glob("*/manifest-*")}


def _change(path: Path) -> bytes:
    """Writes another content of the same size; returns the one of before."""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"amber", b"basil").replace(b" 19 x", b" 09 x"))
    assert path.read_bytes() != whole
    return whole


@pytest.mark.parametrize(
    ("name", "sealed"), [("corpus.jsonl", {"retrieve"}), ("given.trec", set())], ids=["corpus", "given run"]
)
def test_an_input_that_changed_after_the_plan_seals_nothing(
    small: Path, collection: Path, name: str, sealed: set[str]
) -> None:
    config, plan = _planned(collection)
    whole = _change(collection / name)
    with pytest.raises(BeamrankError, match=rf"{name}.* changed after .*Run the same command again"):
        _finish(config, plan)
    assert _seals(collection) == sealed
    assert not list((collection / "out").glob("tokenize-*/receipts/*"))
    # The content of before gives the run of before; planned anew, the other content gives another.
    (collection / name).write_bytes(whole)
    expected = run_bytes(small / "out")
    assert _finish(config, plan) == expected
    _change(collection / name)
    assert _finish(*_planned(collection)) != expected


class _LateChange(Launcher):
    """Changes the corpus between the launcher's check and the scan."""

    def _tokenize_job(self, stage: StageSpec, needed_url: str, units: tuple[CorpusUnit, ...]) -> TokenizeJob:
        _change(Path(self.config.corpus.path))
        return super()._tokenize_job(stage, needed_url, units)


def test_a_corpus_that_changes_after_the_job_was_made_seals_nothing(collection: Path) -> None:
    with pytest.raises(DataError, match=r"corpus\.jsonl changed after its digest was taken"):
        _finish(*_planned(collection), launcher=_LateChange)
    assert _seals(collection) == {"retrieve"}
    assert not list((collection / "out").glob("tokenize-*/receipts/*"))


def _always(change: Callable[[], None], undo: Callable[[], None], read: Callable[..., Any]) -> Callable[..., Any]:
    """A reader that finds other files than before and after it."""

    def reader(*arguments: Any, **options: Any) -> Any:
        change()
        try:
            found = read(*arguments, **options)
            return iter(list(found)) if isinstance(found, Iterator) else found
        finally:
            undo()

    return reader


def _point(link: Path, target: Path) -> None:
    link.with_suffix(".link").symlink_to(target)
    link.with_suffix(".link").rename(link)


@pytest.mark.parametrize(
    ("name", "reader"),
    [("corpus.jsonl", "transforms.join.read_unit"), ("given.trec", "beamrank.stages.given_run.read_run")],
)
@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_points_elsewhere_while_it_is_read_seals_nothing(
    collection: Path, name: str, reader: str, linked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = collection / "first", collection / "second"
    first.mkdir()
    (collection / name).rename(first / name)
    shutil.copytree(first, second)
    _change(second / name)
    link, below = (collection / name, name) if linked == "file" else (collection / "data", "")
    link.symlink_to(first / below)
    if linked == "folder":
        text = (collection / "config.yaml").read_text()
        (collection / "config.yaml").write_text(text.replace(name, f"data/{name}"))
    config, plan = _planned(collection)
    read = _always(
        lambda: _point(link, second / below), lambda: _point(link, first / below), pkgutil.resolve_name(reader)
    )
    monkeypatch.setattr(reader, read)
    with pytest.raises(BeamrankError, match=rf"{name} changed after its digest was taken"):
        _finish(config, plan)
    assert not {"tokenize", "mono"} & _seals(collection)


@pytest.mark.parametrize("when", ["for good", "while the files are listed"])
def test_a_file_that_leaves_the_corpus_after_the_plan_is_missed(
    collection: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = collection / "docs"
    docs.mkdir()
    lines = (collection / "corpus.jsonl").read_text().splitlines(keepends=True)
    (docs / "first.jsonl").write_text("".join(lines[:10]))
    (docs / "second.jsonl").write_text("".join(lines[10:]))
    values = yaml.safe_load((collection / "config.yaml").read_text())
    values |= {"corpus": {"path": "docs", "format": "jsonl"}, "on_missing_doc": "drop"}
    (collection / "config.yaml").write_text(yaml.safe_dump(values))
    config, plan = _planned(collection)
    left, gone = docs / "second.jsonl", collection / "gone"
    if when == "for good":
        left.rename(gone)
    else:
        listing = _always(lambda: _move(left, gone), lambda: _move(gone, left), list_units)
        monkeypatch.setattr(launcher, "list_units", listing)
    with pytest.raises(DataError, match=r"second\.jsonl (was removed|changed) after its digest was taken"):
        _finish(config, plan)
    assert _seals(collection) == {"retrieve"}


def _move(path: Path, to: Path) -> None:
    path.rename(to)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


class _DamagedNeeds(Launcher):
    """Flips a bit of the needed docs before the scan."""

    def _tokenize_job(self, stage: StageSpec, needed_url: str, units: tuple[CorpusUnit, ...]) -> TokenizeJob:
        _flip(Path(needed_url))
        return super()._tokenize_job(stage, needed_url, units)


def test_needed_docs_that_changed_lose_no_docs_in_silence(collection: Path) -> None:
    config, plan = _planned(collection)
    config = config.model_copy(update={"on_missing_doc": "drop"})
    with pytest.raises(DataError, match=r"needed-\S+\.bin changed after it was written"):
        _finish(config, plan, launcher=_DamagedNeeds)
    assert _seals(collection) == {"retrieve"}


@pytest.mark.parametrize("kind", ["mono", "duo"])
@pytest.mark.parametrize("when", ["loaded", "scored"])
def test_a_checkpoint_that_changes_after_its_digest_commits_nothing(
    collection: Path, kind: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are mapped into memory, so what is written into their file reaches the model that scores."""
    values = yaml.safe_load((collection / "config.yaml").read_text())
    for each in ("mono", "duo"):
        values[each]["checkpoint"] = each
    (collection / "config.yaml").write_text(yaml.safe_dump(values))
    config, plan = _planned(collection)
    weights = collection / kind / "model.safetensors"
    content = weights.read_bytes()
    changed = content[: len(content) // 2] + bytes(len(content) - len(content) // 2)
    reader = "ScoringEngine" if when == "loaded" else f"score_{kind}"

    read = _always(
        lambda: _write(weights, changed),
        lambda: _write(weights, content),
        pkgutil.resolve_name(f"{score.__name__}:{reader}"),
    )
    monkeypatch.setattr(score, reader, read)
    with pytest.raises(BeamrankError, match=r"model\.safetensors changed after its digest was taken"):
        _finish(config, plan)
    assert kind not in _seals(collection)


def _copy_over(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("change", [Path.touch, _copy_over], ids=["touched", "copied"])
def test_inputs_that_were_only_touched_or_copied_are_the_same(
    small: Path, collection: Path, change: Callable[[Path], None]
) -> None:
    config, plan = _planned(collection)
    for name in ("corpus.jsonl", "given.trec"):
        change(collection / name)
    assert _finish(config, plan) == run_bytes(small / "out")


def test_a_file_that_joins_the_corpus_after_the_plan_is_found(collection: Path) -> None:
    (collection / "docs").mkdir()
    (collection / "corpus.jsonl").rename(collection / "docs/first.jsonl")
    values = yaml.safe_load((collection / "config.yaml").read_text())
    values["corpus"]["path"] = "docs"
    (collection / "config.yaml").write_text(yaml.safe_dump(values))
    config, plan = _planned(collection)
    (collection / "docs/second.jsonl").write_text('{"id": "d99", "contents": "amber"}\n')
    with pytest.raises(DataError, match=r"second\.jsonl was added to the corpus .*docs after the run was planned"):
        _finish(config, plan)
    assert _seals(collection) == {"retrieve"}


# A local index.


@pytest.fixture(scope="module")
def searched(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of BM25 alone, whose index is built."""
    folder = tmp_path_factory.mktemp("searched")
    for name in ("corpus.jsonl", "topics.tsv"):
        shutil.copy(small / name, folder)
    values: Mapping[str, Any] = {
        "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "index": {"path": "index"},
        "bm25": {"k": 5},
        "threads": 1,
        "shards": 2,
        "output": "out",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    make_plan(load_config(str(folder / "config.yaml")), QUIET)
    return folder


@pytest.fixture
def index_copy(searched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(searched, tmp_path / "copy", ignore=shutil.ignore_patterns("out")))


def _flip(path: Path) -> None:
    """Flips a bit in the middle of a file, and sets the time of writing back."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _index_file(folder: Path) -> Path:
    """The largest, of which much is never looked at."""
    return max((folder / "index").glob("_*"), key=lambda path: path.stat().st_size)


@pytest.mark.jvm
def test_an_index_that_changed_after_the_plan_seals_nothing(index_copy: Path) -> None:
    config, plan = _planned(index_copy)
    _flip(_index_file(index_copy))
    with pytest.raises(BeamrankError, match="index is not, or no longer, the one with digest"):
        _finish(config, plan)
    assert _seals(index_copy) == set()
    with pytest.raises(
        PreflightError, match=f"{_index_file(index_copy).name} does not hold the bytes that were written"
    ):
        _planned(index_copy)
    _flip(_index_file(index_copy))
    first = _finish(*_planned(index_copy))
    assert len(first["bm25.trec"].splitlines()) > 20


@pytest.mark.jvm
def test_an_index_that_changes_between_two_shards_commits_the_first_alone(index_copy: Path) -> None:
    _, plan = _planned(index_copy)
    keys = plan.stage("retrieve").keys
    folder = plan.folder("retrieve").url
    job = RetrieveJob(folder, str(index_copy / "index"), keys["index"], keys["k1"], keys["b"], keys["k"], 1)
    digests = plan.shard_digests(plan.stage("retrieve"), [])
    first, second = _tasks(plan, digests)
    job.run(first)
    _flip(_index_file(index_copy))
    with pytest.raises(DataError, match="changed while it was searched"):
        job.run(second)
    assert set(job.folder.receipts(digests)) == {0}
    # Whoever tries again checks the content: wrong as it is, and right once it is back.
    with pytest.raises(PreflightError, match="is not, or no longer, the one"):
        job.run(second)
    _flip(_index_file(index_copy))
    job.run(second)
    assert set(job.folder.receipts(digests)) == {0, 1}


def _tasks(plan: Plan, digests: Sequence[str]) -> list[ShardTask]:
    return [
        ShardTask(shard.index, digest, shard.topics, ()) for shard, digest in zip(plan.shards, digests, strict=True)
    ]


@pytest.mark.jvm
def test_a_corpus_that_changes_while_it_is_indexed_leaves_no_index(index_copy: Path) -> None:
    shutil.rmtree(index_copy / "index")
    config = load_config(str(index_copy / "config.yaml"))

    class Change(Silent):
        changed = False

        def update(self, *_) -> None:
            if not self.changed:
                self.changed = True
                _change(index_copy / "corpus.jsonl")

    with pytest.raises(DataError, match=r"corpus\.jsonl changed after its digest was taken"):
        build_index(config.corpus, str(index_copy / "index"), 1, progress=Change())
    assert not (index_copy / "index").exists()

"""Damaged outputs of trainings: the same command refuses them by name, or writes the same weights
as without damage.

Nothing here depends on which files a training keeps, or on what is in them.
"""

import functools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from beamrank.errors import BeamrankError
from beamrank.notes import SILENT
from models.training import trainer
from tests.pipelines.commands.test_train import train
from tests.support.tiers import slow_but
from tests.support.training import make_session, save_start, stop_after, write_train_config

_STEPS = ["--set", "optimizer.steps=6"]
_DEV = {
    "topics": {"path": "topics.tsv", "format": "tsv"},
    "qrels": "qrels.txt",
    "run": "run.trec",
    "every_steps": 2,
}
# For people to read; no later call reads them.
_FOR_PEOPLE = {"README.md", "curves.svg", "train.log"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with the outputs of a finished training and of the same one, interrupted after its
    first dev runs.
    """
    folder = tmp_path_factory.mktemp("trained")
    config = write_train_config(folder, save_start(folder / "start"), dev=_DEV)
    assert train("mono", config, *_STEPS, "--output", folder / "finished").exit_code == 0
    trainer.train(
        make_session(config, "mono", _STEPS[1:], folder / "interrupted"), stop_after(5), SILENT, ""
    )
    return folder


def resume(trained: Path, output: Path) -> tuple[int, str]:
    """The exit code and the message of the same command; errors that are not ours are raised."""
    try:
        return train("mono", trained / "train.yaml", *_STEPS, "--output", output).exit_code, ""
    except BeamrankError as error:
        return error.exit_code, str(error)


def copies(trained: Path, name: str, folder: Path, every: bool = True) -> Iterator[Path]:
    """Each file of an output, or one of each type in a folder, each time in a new copy of the
    output.
    """
    source = trained / name
    paths = [path for path in source.rglob("*") if path.is_file() and path.name not in _FOR_PEOPLE]
    copy = folder / "copy"
    for path in sorted(
        paths if every else {(path.parent, path.suffix): path for path in paths}.values()
    ):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        yield copy / path.relative_to(source)


def assert_refused_or_whole(trained: Path, output: Path, damaged: Path) -> None:
    """The same command names the file, or leaves the same model."""
    code, message = resume(trained, output)
    if code:
        assert (code, str(damaged) in message) == (3, True), (damaged, message)
        return
    for path in (trained / "finished").iterdir():
        if path.is_file() and path.name not in _FOR_PEOPLE:
            assert (output / path.name).read_bytes() == path.read_bytes(), damaged


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = random.Random(path.name).randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def flip_first(path: Path) -> None:
    """In the header, if there is one."""
    content = bytearray(path.read_bytes())
    content[min(8, len(content) - 1)] ^= 4
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def swap(path: Path) -> None:
    """With the next larger file, if there is one, as a wrong restore does."""
    others = sorted(each for each in path.parent.iterdir() if each.is_file() and each != path)
    if others:
        path.write_bytes(others[0].read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("output", slow_but(1, ["finished", "interrupted"]))
@pytest.mark.parametrize(
    ("damage", "every"),
    [
        (flip, False),
        *(
            pytest.param(damage, True, marks=pytest.mark.slow)
            for damage in (flip, flip_first, truncate, swap, Path.unlink)
        ),
    ],
)
def test_train_never_goes_on_from_damaged_files(
    damage: Callable[[Path], None], every, output, trained, tmp_path
):
    for path in copies(trained, output, tmp_path, every):
        damage(path)
        assert_refused_or_whole(trained, tmp_path / "copy", path)


@pytest.mark.slow
def test_undamaged_outputs_resume_to_the_same_model(trained, tmp_path):
    path = next(copies(trained, "interrupted", tmp_path))
    assert resume(trained, tmp_path / "copy") == (0, "")
    assert_refused_or_whole(trained, tmp_path / "copy", path)
    assert resume(trained, trained / "finished") == (0, "")


def changed(value: object) -> object:
    """The same JSON with other numbers and truth values, at every place."""
    if isinstance(value, dict):
        return {key: changed(each) for key, each in value.items()}
    if isinstance(value, bool):
        return not value
    return value + 5 if isinstance(value, int | float) else value


def change_numbers(path: Path) -> None:
    path.write_text(json.dumps(changed(json.loads(path.read_text()))))


def shorten_tensors(path: Path) -> None:
    """To those that could be broadcast."""
    save_file(
        {name: tensor.flatten()[:1].clone() for name, tensor in load_file(path).items()}, path
    )


_OTHER_JSON = [
    functools.partial(Path.write_text, data=text)
    for text in ('{"step": 6}', "null", "3", "[]", '""', "{}")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "damage"),
    slow_but(
        2,
        [
            (".safetensors", shorten_tensors),
            (".json", change_numbers),
            *((".json", each) for each in _OTHER_JSON),
        ],
    ),
)
def test_train_believes_no_other_content(suffix, damage, trained, tmp_path):
    for path in copies(trained, "interrupted", tmp_path):
        if path.suffix == suffix and path.parent != tmp_path / "copy":
            damage(path)
            assert_refused_or_whole(trained, tmp_path / "copy", path)

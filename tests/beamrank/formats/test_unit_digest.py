"""The digest of a corpus unit covers what decides its docs, and nothing else."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from beamrank.formats.corpora import FORMATS, CorpusConfig, list_units, unit_digest
from beamrank.formats.texts.units import CorpusUnit
from beamrank.storage.digested import digest_file


@pytest.fixture
def unit(tmp_path: Path) -> CorpusUnit:
    (tmp_path / "docs.jsonl").write_text('{"id": "a", "contents": "b", "title": "c"}\n')
    (found,) = list_units(CorpusConfig(path=str(tmp_path / "docs.jsonl"), format="jsonl"))
    return found


def _digest(unit: CorpusUnit) -> str:
    return unit_digest(unit, digest_file(unit.url))


@pytest.mark.parametrize("changed", [{"fields": ("title",)}, {"format": FORMATS["beir"]}, {"start": 5}, {"end": 9}])
def test_unit_digest_covers_how_a_unit_is_read(unit: CorpusUnit, changed: dict[str, Any]) -> None:
    assert _digest(dataclasses.replace(unit, **changed)) != _digest(unit)


@pytest.mark.parametrize(("name", "same"), [("moved/other.jsonl", True), ("docs.jsonl.gz", False), ("a.tar.gz", False)])
def test_unit_digest_covers_the_ending_of_a_name_alone(unit: CorpusUnit, tmp_path: Path, name: str, same: bool) -> None:
    copy = tmp_path / name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(Path(unit.url).read_bytes())
    assert (_digest(dataclasses.replace(unit, index=3, url=str(copy))) == _digest(unit)) is same


def test_unit_digest_covers_the_content(unit: CorpusUnit) -> None:
    before = _digest(unit)
    Path(unit.url).write_text('{"id": "a", "contents": "B", "title": "c"}\n')
    assert _digest(unit) != before


def test_tar_and_plain_compression_differ(unit: CorpusUnit, tmp_path: Path) -> None:
    digests = set()
    for name in ("a.gz", "a.tar.gz", "a.tgz", "a.parquet"):
        (tmp_path / name).write_bytes(Path(unit.url).read_bytes())
        digests.add(_digest(dataclasses.replace(unit, url=str(tmp_path / name))))
    assert len(digests) == 4

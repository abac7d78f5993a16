"""The units of a corpus travel in a file, and are read from it one by one."""

from dataclasses import replace

import pytest

from beamrank.commit.listing import TASKS, list_folder, tasks_prefix
from beamrank.errors import DataError
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units, read_unit
from models.stages.corpus_scan import UnitFile
from tests.support.changed_files import flip_bit


def test_units_read_back_from_any_of_many_files(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "000.tsv").write_text("id\ttext\n" + "".join(f"c{n}\tamber\n" for n in range(50)))
    for number in range(1, 150):
        (folder / f"{number:03}.tsv").write_text(f"id\ttext\nd{number}\tcedar\n")
    corpus = CorpusConfig(path=str(folder), format="tsv", header=True)
    files = digest_corpus(corpus).files
    sources = [(unit, files[unit.url]) for unit in list_units(corpus, unit_bytes=200)]
    assert len(sources) > 150
    units = UnitFile.write(str(tmp_path), tasks_prefix(["0"]), sources)
    for number in (0, 1, 64, len(sources) - 1):
        assert units.read(number) == sources[number]
    (batch,) = read_unit(units.read(len(sources) - 1)[0])
    assert batch.doc_ids == ["d149"]
    assert units.place(1, 210) == f"{folder}/000.tsv at byte 210"
    (entry,) = list_folder(str(tmp_path))
    assert entry.kind is TASKS
    flip_bit(tmp_path / entry.name)
    damaged = replace(units, url=str((tmp_path / entry.name).rename(tmp_path / "damaged.parquet")))
    with pytest.raises(DataError, match=r"damaged\.parquet .*was changed"):
        list(map(damaged.read, range(len(sources))))

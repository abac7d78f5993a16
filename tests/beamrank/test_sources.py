"""Names of data sets: a source that a package brings, and none."""

import pytest

from beamrank.config.load import load_config
from beamrank.errors import ConfigError
from beamrank.sources import SOURCES, fetch_part, is_named
from tests.support.plugins import install
from tests.support.progress import RecordedProgress
from tests.support.small_collection import SmallCollection


def test_source_of_a_package_gives_the_files_of_its_names(tmp_path, monkeypatch):
    code = "def fetch(name, part, *_):\n    return f'/data/{name}/{part}'\n"
    (tmp_path / "shelf.py").write_text(code)
    install(tmp_path, monkeypatch, SOURCES, shelf="shelf:fetch")
    assert fetch_part("shelf:a:b", "qrels", RecordedProgress()) == "/data/a:b/qrels"
    for path in ("shelf", "gs://shelf/x", "other:x"):
        assert fetch_part(path, "qrels", None) == path
    collection = SmallCollection(tmp_path, corpus="shelf:x", index={"path": "i"}, bm25={})
    assert load_config(str(collection.path)).corpus.path == "shelf:x"


def test_names_without_a_source_are_paths_and_no_index(tmp_path, monkeypatch):
    monkeypatch.setattr(SOURCES, "_entries", {})
    assert not is_named("irds:small")
    collection = SmallCollection(tmp_path, index={"prebuilt": "small"}, bm25={})
    with pytest.raises(ConfigError, match="  index: "):
        load_config(str(collection.path))

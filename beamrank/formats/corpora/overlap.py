"""Whether files that beamrank is going to write would be read as files of the corpus."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from beamrank.errors import PreflightError
from beamrank.formats.corpora.reader import corpus_files, resolved
from beamrank.formats.corpora.registry import CorpusConfig
from beamrank.storage import files as storage
from beamrank.storage.globs import find


def find_taken(corpus: CorpusConfig, urls: Sequence[str]) -> str | None:
    """The first of some files, which need not exist, that the corpus's folder or glob would take for its own.

    The corpus's format is asked, in a copy of the folders that holds nothing but these files.

    Raises:
        PreflightError: no file can have one of the paths.
    """
    # A corpus that does not exist is refused elsewhere.
    with suppress(PreflightError):
        corpus = resolved(corpus)
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.realpath(folder)
        copies = {url: Path(_copied(root, url)) for url in urls}
        for url, copy in copies.items():
            try:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.touch()
            except OSError as error:
                storage.refuse_impossible_path(url, error)
                raise
        found: set[Path] = set()
        path = _copied(root, corpus.path)
        with suppress(PreflightError):
            # A folder that the glob matches would be refused by the next run.
            found.update(each for each in map(Path, find(path, folders=True)) if each.is_dir())
        with suppress(PreflightError):
            found.update(map(Path, corpus_files(corpus.model_copy(update={"path": path}))))
        return next((url for url, copy in copies.items() if found & {copy, *copy.parents}), None)


def _copied(root: str, url: str) -> str:
    if storage.is_remote(url):
        return f"{root}/{url.replace('://', '/')}"
    return f"{root}/file{os.path.realpath(storage.absolute(url))}"

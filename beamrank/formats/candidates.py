"""What can be given as a run: files, folders and globs of them, and corpora that list the candidates of queries."""

import re
from collections.abc import Sequence

from beamrank.errors import PreflightError
from beamrank.formats.corpora import FORMATS
from beamrank.formats.files import Beginning, Choice, Paths, paths_of, shown_paths
from beamrank.formats.texts.tables import is_table
from beamrank.storage import files as storage
from beamrank.storage.globs import NOT_DATA, find
from beamrank.storage.streams import errors_as, without_compression

_README = re.compile(r"readme", re.IGNORECASE)
# The bytes 0x80 to 0xbf of UTF-8, as they look when they were read as Latin-1 or as Windows-1252.
_CONTINUED = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_TWICE_ENCODED = re.compile(f"[ÂÃ][{_CONTINUED}]|â[{_CONTINUED}]{{2}}")


def run_files(paths: Paths) -> list[str]:
    """The files of a run: each path, what its glob matches, or those of its folder; sorted, each once.

    Of a folder with Parquet or Arrow files these are read, as the files of a table; other files all have one ending.

    Raises:
        PreflightError: there are none, or a folder has files of several kinds.
    """
    files: dict[str, None] = {}
    for path in paths_of(paths):
        with errors_as(PreflightError, path):
            found = find(path)
            files |= dict.fromkeys(_of_folder(path, found) if storage.is_folder(path) else found)
    if not files:
        raise PreflightError(f"there is no run {shown_paths(paths)}: give a file, a folder or a glob. {NOT_DATA}")
    return list(files)


def _of_folder(folder: str, files: Sequence[str]) -> Sequence[str]:
    if tables := [url for url in files if is_table(url)]:
        return tables
    runs = [url for url in files if not _README.match(storage.name(url))]
    by_ending = {storage.name(without_compression(url)).rpartition(".")[2]: url for url in reversed(runs)}
    if len(by_ending) > 1:
        first, second = sorted(by_ending.values())[:2]
        raise PreflightError(
            f"the folder {folder} is no run of one kind: it holds several kinds of files, such as {first} and "
            f"{second}. Give a glob"
        )
    return runs


def files_of_run(path: str) -> list[str]:
    """The files of one run: a path itself, which can be a pipe, or those of a folder or a glob."""
    with errors_as(PreflightError, path):
        are_several = storage.is_folder(path) or (any(each in path for each in "*?[") and not storage.exists(path))
    return run_files(path) if are_several else [path]


def listed_format(url: str) -> str | None:
    """The format of a corpus that lists candidates; None for other files."""
    formats = {name: each for name, each in FORMATS.items() if each.lists_candidates}
    return Choice("candidates", formats).guess(Beginning(url))


def is_twice_encoded(text: str) -> bool:
    """Whether a text was encoded as UTF-8 twice."""
    # Most texts hold none of the letters, which is found faster.
    return ("Ã" in text or "Â" in text or "â" in text) and _TWICE_ENCODED.search(text) is not None

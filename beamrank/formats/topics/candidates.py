"""Candidates of a first stage: runs, and files that hold topics, texts and candidates together."""

from collections.abc import Callable
from typing import TypeAlias

from beamrank.errors import PreflightError
from beamrank.formats.corpora.readers.mteb import is_mteb
from beamrank.formats.guess import guess_format
from beamrank.formats.names import Columns
from beamrank.formats.runs import Run, Ties, read_run
from beamrank.formats.topics import mteb, rank_llm, top1000
from beamrank.storage.streams import errors_as, open_stream

_GUESSED_BYTES = 1 << 16

# Of a URL, the order of tied scores, and how many rows may be unusable.
ReadCandidates: TypeAlias = Callable[[str, Ties, int], Run]

FORMATS: dict[str, ReadCandidates] = {
    "mteb": lambda url, _ties, _max_bad_rows: mteb.read_candidates(url),
    "rank_llm": rank_llm.read_candidates,
    "top1000": lambda url, _ties, max_bad_rows: top1000.read_candidates(url, max_bad_rows),
}


def read_candidates(url: str, ties: Ties, max_bad_rows: int, columns: Columns | None = None) -> Run:
    """Reads a run, or the candidates of a file that looks like one of `FORMATS`.

    Raises:
        PreflightError: the file cannot be read, or lines are wrong.
    """
    with errors_as(PreflightError, url), open_stream(url) as file:
        name = guess_format(file.read(_GUESSED_BYTES))
        name = "mteb" if name == "parquet" and is_mteb(url) else name
    reader = FORMATS.get(name or "")
    if reader is None:
        return read_run(url, ties=ties, columns=columns)
    if columns:
        raise PreflightError(f"{url} looks like {name}, whose fields have fixed names: leave `candidates.columns` out")
    return reader(url, ties, max_bad_rows)

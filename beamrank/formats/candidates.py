"""Candidates of a first stage: runs, and corpora that list the candidates of queries."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from beamrank.errors import DataError, PreflightError
from beamrank.formats.columns import Columns
from beamrank.formats.corpora import FORMATS
from beamrank.formats.files import Beginning, Choice
from beamrank.formats.notes import counted
from beamrank.formats.runs import Run, RunRows, Ties, read_run, run_of
from beamrank.formats.texts.units import CorpusUnit
from beamrank.records import BadRow

_SHOWN_ROWS = 5
# The bytes 0x80 to 0xbf of UTF-8, as they look when they were read as Latin-1 or as Windows-1252.
_CONTINUED = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_TWICE_ENCODED = re.compile(f"[ÂÃ][{_CONTINUED}]|â[{_CONTINUED}]{{2}}")


def read_candidates(url: str, ties: Ties, max_bad_rows: int, columns: Columns | None = None) -> Run:
    """Reads a run, or the candidates that a corpus lists: by their scores, or in the order of the file."""
    name = _listed_format(url)
    if name is None:
        return read_run(url, ties=ties, columns=columns)
    if columns:
        raise PreflightError(f"{url} looks like {name}, whose fields have fixed names: leave `candidates.columns` out")
    try:
        return _read_listed(CorpusUnit(0, url, FORMATS[name], None, 0, 0), ties, max_bad_rows)
    except DataError as error:
        raise PreflightError(f"{url}: {error}") from error


def first_docs(url: str, rows: int, columns: Columns | None = None) -> set[str]:
    """The docs of the first rows of a run; none where a corpus lists the candidates: they are its docs."""
    if _listed_format(url) is not None:
        return set()
    return {row.doc_id.decode("utf-8", "replace") for row in islice(RunRows(url, columns).rows(), rows)}


def _listed_format(url: str) -> str | None:
    """The format of a corpus that lists candidates; None for other files."""
    formats = {name: each for name, each in FORMATS.items() if each.lists_candidates}
    return Choice("candidates", formats).guess(Beginning(url))


def _read_listed(unit: CorpusUnit, ties: Ties, max_bad_rows: int) -> Run:
    scores: dict[str, dict[str, float]] = {}
    bad: list[BadRow] = []
    twice_encoded: list[int] = []
    are_ranked = False
    for batch in unit.format.read(unit):
        bad += batch.bad
        for at, (query_id, doc_id, text) in enumerate(zip(batch.query_ids, batch.doc_ids, batch.texts, strict=True)):
            docs = scores.setdefault(query_id, {})
            if doc_id in docs:
                raise _twice(unit, query_id, doc_id, batch.positions[at])
            score = batch.scores[at] if batch.scores else None
            are_ranked = are_ranked or score is not None
            docs[doc_id] = -float(len(docs) + 1) if score is None else score
            if _is_twice_encoded(text):
                twice_encoded.append(batch.positions[at])
    if len(bad) > max_bad_rows:
        first = "".join(f"\n  {row.place}: {row.reason}" for row in bad[:_SHOWN_ROWS])
        raise PreflightError(
            f"{counted(len(bad), 'row')} of {unit.url} cannot be read as candidates, and max_bad_rows is "
            f"{max_bad_rows}{first}"
        )
    remarks = [] if are_ranked else [f"unranked; {unit.format.candidate_order}"]
    if bad:
        remarks.append(f"rows that cannot be used: {len(bad):,} (first: {bad[0].place}: {bad[0].reason}); left out")
    if twice_encoded:
        remarks.append(
            f"texts that were encoded as UTF-8 twice: {len(twice_encoded):,} (first: {unit.place(twice_encoded[0])}); "
            "read as they are. Another file of these docs, as the corpus, may have them correct"
        )
    run = run_of(scores, ties=ties)
    return replace(run, notes=replace(run.notes, format=unit.format.name, remarks=tuple(remarks)))


def _twice(unit: CorpusUnit, query_id: str, doc_id: str, second: int) -> PreflightError:
    first = next(position for key, position in _positions(unit) if key == (query_id, doc_id))
    return PreflightError(
        f"query {query_id!r} has doc {doc_id!r} twice: {unit.place(first)} and {unit.place(second)}. Remove one of "
        "the rows"
    )


def _positions(unit: CorpusUnit) -> Iterator[tuple[tuple[str, str], int]]:
    for batch in unit.format.read(unit):
        yield from zip(zip(batch.query_ids, batch.doc_ids, strict=True), batch.positions, strict=True)


def _is_twice_encoded(text: str) -> bool:
    # Most texts hold none of the letters, which is found faster.
    return ("Ã" in text or "Â" in text or "â" in text) and _TWICE_ENCODED.search(text) is not None

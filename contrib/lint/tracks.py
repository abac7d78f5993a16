"""What tracks ask of a run. A new track is an entry in `TRACKS`."""

import re
from dataclasses import dataclass

# Versions 1, 2 and 2.1; those with `#` are segments of docs.
_MSMARCO_DOCS = rb"D?\d+|msmarco_passage_\d\d_\d+|msmarco_(v2\.1_)?doc_\d\d_\d+(#\d+(_\d+)?)?"
_TREC_TAG = rb"[A-Za-z0-9_-]{1,15}"


@dataclass(frozen=True)
class Track:
    """The rules of a track. Without a rule, anything that evaluators can read is accepted.

    Attributes:
        first_ranks: the accepted ranks of a topic's first doc; `--fix` counts from the last one.
        run_tag: the pattern of a run tag.
        query_id: the pattern of a query_id.
        doc_id: the pattern of a doc_id.
        max_docs: the most docs of a topic. With a limit, topics with fewer docs than the others are reported too.
    """

    first_ranks: tuple[int, ...] = (1,)
    run_tag: bytes | None = None
    query_id: bytes | None = None
    doc_id: bytes | None = None
    max_docs: int | None = None


TRACKS: dict[str, Track] = {
    "generic": Track(first_ranks=(0, 1)),
    "msmarco": Track(query_id=rb"\d+", doc_id=_MSMARCO_DOCS, max_docs=1000),
    "trec-car": Track(run_tag=_TREC_TAG, query_id=rb"[!-~]+", doc_id=rb"[0-9a-f]{40}", max_docs=1000),
    "trec-dl": Track(run_tag=_TREC_TAG, query_id=rb"\d+", doc_id=_MSMARCO_DOCS, max_docs=1000),
}


def matches(pattern: bytes | None, text: bytes) -> bool:
    """Whether a text satisfies a rule of a track."""
    return pattern is None or re.fullmatch(pattern, text) is not None

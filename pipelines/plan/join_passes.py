"""The number of passes over the corpus if the join's shuffle is kept in the launcher's memory."""

from collections.abc import Sequence

import psutil

from beamrank.formats.corpora import read_unit
from beamrank.formats.texts.units import CorpusUnit

# FnApiRunner keeps the shuffle in the launcher's memory, in 6 to 10 times its size.
_LOCAL_SHUFFLE_FACTOR = 10
_LOCAL_SHUFFLE_SHARE = 0.4
_ROW_OVERHEAD_BYTES = 64
_TOKEN_BYTES = 2
_LETTERS_PER_TOKEN = 4
_SAMPLE_DOCS = 1000


def join_passes(docs: int, units: Sequence[CorpusUnit], shards: int, doc_tokens: int) -> int:
    """The number of passes over the corpus, so that each shuffle fits in this machine's memory.

    Args:
        docs: how many docs travel, a doc once for each shard that wants it.
        units: the corpus.
        shards: how many shards are joined; the most passes.
        doc_tokens: how many tokens are kept of a doc.
    """
    if not docs:
        return 1
    room = psutil.virtual_memory().available * _LOCAL_SHUFFLE_SHARE / _LOCAL_SHUFFLE_FACTOR
    return max(1, min(shards, -int(-docs * _doc_bytes(units, doc_tokens) // room)))


def _doc_bytes(units: Sequence[CorpusUnit], doc_tokens: int) -> float:
    """The bytes of a doc in the shuffle, estimated from the letters of the first docs."""
    letters: list[int] = []
    for batch in read_unit(units[0]):
        letters += [len(text) for text in batch.texts]
        if len(letters) >= _SAMPLE_DOCS:
            break
    tokens = [min(count / _LETTERS_PER_TOKEN, doc_tokens) for count in letters]
    return _ROW_OVERHEAD_BYTES + _TOKEN_BYTES * sum(tokens) / max(1, len(tokens))

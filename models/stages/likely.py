"""Which docs of a sample a first stage would probably find: estimates weigh these, not docs at random."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

from beamrank.ranking.input_layout import Lengths

_K1, _B = 0.9, 0.4
_LEAST = 8
# Lucene's analyzer drops stop words. They are known here by being in so many of the docs.
_IN_MOST_DOCS = 0.1


def likely_candidates(queries: pa.ListArray, docs: pa.ListArray, share: float) -> Lengths:
    """Ranks the docs for each query by BM25 over token ids, and keeps the best.

    BM25 finds docs that are longer than the mean, and the time of a model follows their length.

    Args:
        queries: the token ids of q queries.
        docs: the token ids of n docs.
        share: of the docs of the corpus, how many are candidates of a query.

    Returns:
        int64[q, d], the best `share` of the docs, best first; `_LEAST` docs where that is fewer.
    """
    vocab_size = 1 + max(int(np.max(each.values, initial=0)) for each in (queries, docs))
    asked, found = (_counts(each, vocab_size) for each in (queries, docs))
    scores = (asked @ _weights(found).T).toarray()
    ranked = np.argsort(-scores, axis=1, kind="stable")
    return ranked[:, : max(_LEAST, round(share * len(docs)))].astype(np.int64)


def _counts(texts: pa.ListArray, vocab_size: int) -> "csr_array[np.float64]":
    """float64[n, vocab_size], how often each token is in each text."""
    lengths, ids = np.diff(texts.offsets.to_numpy()), texts.flatten().to_numpy()
    rows = np.repeat(np.arange(len(texts)), lengths)
    counts = csr_array((np.ones(len(ids)), (rows, ids)), shape=(len(texts), vocab_size))
    counts.sum_duplicates()
    return counts


def _weights(counts: "csr_array[np.float64]") -> "csr_array[np.float64]":
    """The BM25 weight of each token in each doc, as Lucene has it."""
    docs = counts.shape[0]
    with_token: npt.NDArray[np.int64] = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = np.log(1 + (docs - with_token + 0.5) / (with_token + 0.5)) * (with_token <= max(1, _IN_MOST_DOCS * docs))
    lengths: npt.NDArray[np.float64] = counts.sum(axis=1)
    norms = _K1 * (1 - _B + _B * lengths / max(1.0, float(lengths.mean())))
    frequency = counts.data
    weights = counts.copy()
    weights.data = frequency / (frequency + np.repeat(norms, np.diff(counts.indptr))) * rarity[counts.indices]
    return weights

"""The candidates of a sample."""

import numpy as np
import pyarrow as pa

from models.stages.likely import likely_candidates

_TOKENS = pa.list_(pa.uint16())


def _ranked(queries: list[list[int]], docs: list[list[int]], share: float = 0.0) -> list[list[int]]:
    return likely_candidates(pa.array(queries, _TOKENS), pa.array(docs, _TOKENS), share).tolist()


def test_docs_are_ranked_by_bm25() -> None:
    docs = [[number] for number in range(100, 130)]
    docs[7], docs[20], docs[25] = [5, 6], [5], [6, 6, 6, 6]
    docs[11] = [6]
    first, second = _ranked([[5, 6], [105]], docs)
    # 2.9; 2.2 * 4 / 5.8, 2.5 * 1 / 1.9, 2.2 * 1 / 1.9.
    assert first[:4] == [7, 25, 20, 11]
    assert second[0] == 5


def test_tokens_of_most_docs_are_ignored_like_stop_words() -> None:
    docs = [[1] * 9 for _ in range(30)]
    docs[12] = [2]
    assert _ranked([[1, 1, 1, 2]], docs)[0][0] == 12


def test_candidates_are_a_share_of_the_docs_and_never_few() -> None:
    docs = [[number] for number in range(200)]
    assert np.shape(_ranked([[1], [2]], docs, 0.25)) == (2, 50)
    assert np.shape(_ranked([[1]], docs, 0.0)) == (1, 8)
    assert np.shape(_ranked([[1]], docs, 30.0)) == (1, 200)
    assert np.shape(_ranked([[]], [[], []])) == (1, 2)

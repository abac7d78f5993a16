"""The relevant doc that is added where the first stage found none."""

import pytest

from beamrank.ranking.added_relevant import missing_relevant


@pytest.mark.parametrize(
    ("doc_ids", "judgments", "expected"),
    [
        (["a", "b", "c"], {"b": 1, "z": 1}, None),
        (["a", "b", "c"], {"c": 1}, "c"),
        (["a", "b"], {"z": 1, "y": 3}, "y"),
        ([], {"z": 2}, "z"),
        (["a", "b"], {"a": 0, "z": -1}, None),
        (["a", "b"], {}, None),
    ],
)
def test_missing_relevant_doc_is_the_first_by_id_that_is_not_among_k(doc_ids, judgments, expected):
    assert missing_relevant(doc_ids, judgments, 2) == expected

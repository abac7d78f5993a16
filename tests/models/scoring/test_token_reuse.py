"""Tokens that an earlier run stored, without a run."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import InputPart
from beamrank.join import schemas
from beamrank.storage.documents import hashes64
from models.scoring.reuse import UnusableTokensError, reusable_tokens

_TOKENS = pa.list_(pa.uint16())


def _part(folder: Path, shard: int, docs: dict[str, dict[str, list[int]]]) -> InputPart:
    rows = [
        {
            "query_id": query_id,
            "query_tokens": [1],
            "doc_ids": list(each),
            "ranks": list(range(1, len(each) + 1)),
            "doc_tokens": list(each.values()),
        }
        for query_id, each in docs.items()
    ]
    table = pa.Table.from_pylist(rows, schema=schemas.tokenized(100))
    stage = StageFolder(str(folder / "tokenize-0a1b2c3d"))
    return InputPart(stage, stage.commit(shard, f"{shard:064x}", table, seconds=0, counts={}))


def test_wanted_docs_of_all_parts_are_found_once(tmp_path):
    parts = [
        _part(tmp_path, 0, {"q1": {"a": [5], "b": []}, "q2": {"a": [5], "c": [7, 8]}, "q3": {}}),
        _part(tmp_path, 1, {"q4": {"c": [7, 8], "d": [9]}}),
    ]
    keys, tokens = reusable_tokens(parts, hashes64(["a", "b", "c", "d"]), _TOKENS, of_queries=False)
    assert dict(zip(keys, tokens.to_pylist(), strict=True)) == {"a": [5], "b": [], "c": [7, 8], "d": [9]}
    keys, tokens = reusable_tokens(parts, hashes64(["d", "gone"]), _TOKENS, of_queries=False)
    assert (keys, tokens.to_pylist()) == (["d"], [[9]])


def test_docs_of_queries_are_found_by_both_ids(tmp_path):
    parts = [_part(tmp_path, 0, {"q1": {"a": [5]}, "q2": {"a": [6]}})]
    keys, tokens = reusable_tokens(parts, hashes64(["q2 a"]), _TOKENS, of_queries=True)
    assert (keys, tokens.to_pylist()) == (["q2 a"], [[6]])


def test_no_part_gives_no_doc():
    keys, tokens = reusable_tokens([], np.empty(0, np.uint64), _TOKENS, of_queries=False)
    assert (keys, tokens.to_pylist()) == ([], [])


@pytest.mark.parametrize("spoil", ["missing", "folder"])
def test_part_that_cannot_be_read_is_unusable(tmp_path, spoil):
    part = _part(tmp_path, 0, {"q1": {"a": [5]}})
    path = Path(part.folder.part_url(part.receipt))
    path.unlink()
    if spoil == "folder":
        path.mkdir()
    with pytest.raises(UnusableTokensError, match="cannot be reused"):
        reusable_tokens([part], hashes64(["a"]), _TOKENS, of_queries=False)

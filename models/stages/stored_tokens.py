"""Tokens of docs that an earlier run stored: their units of the corpus did not change, and are not read again."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.shards import InputPart
from beamrank.errors import BeamrankError
from beamrank.formats.texts.units import doc_keys
from beamrank.join.doc_hashes import Hashes
from beamrank.storage.documents import hashes64


class UnusableTokensError(BeamrankError):
    """Stored tokens cannot be taken over, so the corpus must be read."""


def stored_tokens(
    parts: Sequence[InputPart], wanted: Hashes, of_type: pa.ListType, of_queries: bool
) -> tuple[list[str], pa.ListArray]:
    """The docs that tokenized parts have of those wanted: what each is found by, and its tokens.

    Args:
        parts: of a stage that tokenized with the same tokenizer; a doc has the same tokens in each.
        wanted: the hashes of the docs.
        of_type: of the tokens.
        of_queries: whether docs are found by their `doc_keys`.

    Raises:
        UnusableTokensError: a part is missing or damaged.
    """
    found: dict[str, None] = {}
    columns = [pa.array([], of_type)]
    for part in parts:
        table = _read(part)
        keys = pc.list_flatten(table["doc_ids"]).to_pylist()
        if of_queries:
            keys = doc_keys(table["query_id"].take(pc.list_parent_indices(table["doc_ids"])).to_pylist(), keys)
        rows: dict[str, int] = {}
        for row in np.flatnonzero(np.isin(hashes64(keys), wanted)).tolist():
            if keys[row] not in found:
                rows.setdefault(keys[row], row)
        found |= dict.fromkeys(rows)
        columns += pc.list_flatten(table["doc_tokens"]).take(pa.array(rows.values(), pa.int64())).cast(of_type).chunks
    return list(found), pa.concat_arrays(columns)


def _read(part: InputPart) -> pa.Table:
    try:
        return part.read()
    except (BeamrankError, OSError) as error:
        raise UnusableTokensError(f"stored tokens cannot be taken over: {error}") from error

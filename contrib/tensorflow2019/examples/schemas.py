"""What the examples of the original code hold, and the ids that it keeps in a text file beside them."""

from dataclasses import dataclass

import pyarrow as pa

from beamrank.errors import PreflightError

_SCALARS = ("label", "len_gt_titles")
_LARGEST = {"label": 1, "segment_ids": 2}


@dataclass(frozen=True)
class Schema:
    """One of the original schemas.

    Attributes:
        features: what an example holds; of these, `label` and `len_gt_titles` are one number.
        ids: the columns of the text file beside it: a line for each example of topics that were retrieved for.
    """

    features: tuple[str, ...]
    ids: tuple[str, ...]

    def arrow(self, with_ids: bool) -> pa.Schema:
        """The columns of a table; examples of triples have no ids."""
        ids = [(name, pa.string()) for name in self.ids if with_ids]
        return pa.schema([*ids, *((name, feature_type(name)) for name in self.features)])


SCHEMAS: dict[str, Schema] = {
    # dl4marco-bert, MS MARCO.
    "mono": Schema(("query_ids", "doc_ids", "label"), ("query_id", "doc_id")),
    # dl4marco-bert, TREC CAR: len_gt_titles is the number of the topic's relevant paragraphs.
    "car": Schema(("query_ids", "doc_ids", "label", "len_gt_titles"), ("query_id", "doc_id")),
    # duobert.
    "duo": Schema(("input_ids", "segment_ids", "label"), ("query_id", "doc_id_i", "doc_id_j")),
}


ID_COLUMNS = {name for schema in SCHEMAS.values() for name in schema.ids}
FEATURES = {name for schema in SCHEMAS.values() for name in schema.features}


def feature_type(name: str) -> pa.DataType:
    """The Arrow type of a feature."""
    return pa.int32() if name in _SCALARS else pa.list_(pa.int32())


def largest_value(name: str, vocab_size: int | None) -> int:
    """The largest number that a feature may hold; token ids are checked against a vocabulary if its size is known."""
    if name in _LARGEST:
        return _LARGEST[name]
    return vocab_size - 1 if vocab_size is not None and name != "len_gt_titles" else 2**31 - 1


def schema_of(names: set[str], where: str) -> Schema:
    """The schema with these features.

    Raises:
        PreflightError: there is none.
    """
    for schema in SCHEMAS.values():
        if names == {*schema.features}:
            return schema
    known = "; ".join(", ".join(schema.features) for schema in SCHEMAS.values())
    raise PreflightError(f"the examples of {where} have the features {', '.join(sorted(names))}; accepted: {known}")

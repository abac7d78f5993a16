"""The examples of some queries: their inputs exactly as they are scored, cut and with special
tokens.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.ranking.input_layout import InputLimits, PackedInputs, kept_lengths, lay_out
from beamrank.records import SpecialTokens
from contrib.tensorflow2019.examples.files import SCHEMAS, lists
from models.architectures.families import bert_template

_LAID_OUT = 2048
_TABLE_EXAMPLES = 50_000

Rows = npt.NDArray[np.int64]
Relevant = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class ExampleSettings:
    """How examples are made.

    Attributes:
        schema: a name in `SCHEMAS`.
        limits: the truncation rule.
        special: the special tokens.
        docs: so many docs of each query: more are cut, and mono's are filled with `fake`, as in the
            original code. None for the docs that there are.
        fake: the doc_id and the tokens of the doc that fills.
    """

    schema: str
    limits: InputLimits
    special: SpecialTokens
    docs: int | None = None
    fake: tuple[str, Sequence[int]] = ("00000000", ())


@dataclass(frozen=True)
class Texts:
    """Texts of any number of queries and docs, as token ids: one after the other, each text's first
    and its length.
    """

    tokens: npt.NDArray[np.unsignedinteger[Any]]
    starts: Rows
    lengths: Rows


def examples_in_tables(
    tokenized: pa.Table, relevant: Relevant, settings: ExampleSettings
) -> Iterator[pa.Table]:
    """`query_examples`, a few queries at a time."""
    docs = settings.docs or max(
        tokenized["doc_ids"].combine_chunks().value_lengths().to_pylist(), default=1
    )
    per_query = max(docs * (docs - 1) if settings.schema == "duo" else docs, 1)
    step = max(1, _TABLE_EXAMPLES // per_query)
    for start in range(0, tokenized.num_rows, step):
        yield query_examples(tokenized.slice(start, step).combine_chunks(), relevant, settings)


def query_examples(tokenized: pa.Table, relevant: Relevant, settings: ExampleSettings) -> pa.Table:
    """The examples of a table of `schemas.tokenized`: for mono a candidate of a query, for duo two
    of them in an order.

    Args:
        tokenized: queries with their candidates in order.
        relevant: the relevant docs of each query, which make labels and `len_gt_titles`.
        settings: how they are made.
    """
    (batch,) = tokenized.combine_chunks().to_batches()
    query_ids = batch["query_id"].to_pylist()
    query_tokens, query_starts, query_lengths = _slices(batch["query_tokens"])
    doc_tokens, doc_starts, doc_lengths = _slices(batch["doc_tokens"].flatten())
    fake_id, fake_tokens = settings.fake
    doc_ids = [*batch["doc_ids"].flatten().to_pylist(), fake_id]
    counts = batch["doc_ids"].value_lengths().to_numpy().astype(np.int64)
    rows = _rows(counts, _wanted(counts, settings), fake=len(doc_ids) - 1)
    texts = Texts(
        np.concatenate([query_tokens, doc_tokens, np.array([*fake_tokens, 0], query_tokens.dtype)]),
        np.concatenate(
            [query_starts, len(query_tokens) + doc_starts, [len(query_tokens) + len(doc_tokens)]]
        ),
        np.concatenate([query_lengths, doc_lengths, [len(fake_tokens)]]),
    )
    judged = [relevant.get(query_id, ()) for query_id in query_ids]
    of_query = zip(judged, batch["doc_ids"].to_pylist(), strict=True)
    is_relevant = [doc_id in docs for docs, doc_ids in of_query for doc_id in doc_ids]
    if settings.schema == "duo":
        rows = _pairs(rows)
    inputs = rows + np.array([0, *[len(query_ids)] * (rows.shape[1] - 1)])
    ids = [pa.array(query_ids, pa.string()).take(pa.array(rows[:, 0]))]
    ids += [pa.array(doc_ids, pa.string()).take(pa.array(column)) for column in rows[:, 1:].T]
    features = lay_out_examples(texts, inputs, settings)
    features["label"] = pa.array(np.array([*is_relevant, False], np.int32)[rows[:, 1]])
    if settings.schema == "car":
        judged_counts = np.array(list(map(len, judged)), np.int32)
        features["len_gt_titles"] = pa.array(judged_counts[rows[:, 0]])
    schema = SCHEMAS[settings.schema]
    return pa.table(
        [*ids, *(features[name] for name in schema.features)], schema=schema.arrow(with_ids=True)
    )


def lay_out_examples(texts: Texts, rows: Rows, settings: ExampleSettings) -> dict[str, Any]:
    """The tokens of some examples, by the names of the schema's features.

    Args:
        texts: the texts.
        rows: int64[n, 2] or int64[n, 3], which of the texts are the query and the docs of each
            example.
        settings: how they are made.
    """
    template = bert_template(settings.special, rows.shape[1])
    kept = kept_lengths(template, settings.limits, list(texts.lengths[rows].T))
    inputs = PackedInputs(texts.tokens, texts.starts[rows], np.stack(kept, axis=1), template)
    lengths = inputs.lengths
    ids, types = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for start in range(0, len(rows), _LAID_OUT):
        chosen = np.arange(start, min(start + _LAID_OUT, len(rows)))
        batch = lay_out(inputs, chosen, int(lengths[chosen].max()))
        filled = np.arange(batch.token_ids.shape[1]) < batch.lengths[:, None]
        ids.append(batch.token_ids[filled])
        types.append(batch.token_types[filled])
    all_ids, all_types = np.concatenate(ids), np.concatenate(types)
    if settings.schema == "duo":
        return {"input_ids": lists(all_ids, lengths), "segment_ids": lists(all_types, lengths)}
    of_query = all_types == template.token_types[0]
    query_lengths = kept[0] + template.query_special_tokens
    return {
        "query_ids": lists(all_ids[of_query], query_lengths),
        "doc_ids": lists(all_ids[~of_query], lengths - query_lengths),
    }


def _slices(texts: Any) -> tuple[npt.NDArray[Any], Rows, Rows]:
    """The values of lists, and each list's first value and length."""
    lengths = texts.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return texts.flatten().to_numpy(), np.cumsum(lengths) - lengths, lengths


def _wanted(counts: Rows, settings: ExampleSettings) -> Rows:
    """How many docs each query has in the end. Duo's are not filled."""
    if settings.docs is None:
        return counts
    return (
        np.minimum(counts, settings.docs)
        if settings.schema == "duo"
        else np.full_like(counts, settings.docs)
    )


def _rows(counts: Rows, wanted: Rows, fake: int) -> Rows:
    """int64[n, 2], query and doc of each example; `fake` is the number of the doc that fills."""
    firsts = np.cumsum(counts) - counts
    query = np.repeat(np.arange(len(counts)), wanted)
    place = np.arange(len(query)) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return np.stack([query, np.where(place < counts[query], firsts[query] + place, fake)], axis=1)


def _pairs(rows: Rows) -> Rows:
    """int64[m, 3]: of each query, every doc before every other one."""
    query, doc = rows.T
    counts = np.bincount(query, minlength=int(query.max(initial=-1)) + 1)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    i = np.repeat(np.arange(len(rows)), counts[query])
    j = (
        np.arange(len(i))
        - np.repeat(np.cumsum(counts[query]) - counts[query], counts[query])
        + firsts[i]
    )
    i, j = i[i != j], j[i != j]
    return np.stack([query[i], doc[i], doc[j]], axis=1)

"""duoBERT: the log-odds that doc_i is more relevant to a query than doc_j (Nogueira et al. 2019,
section 3.2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit import schemas
from beamrank.ranking.aggregation import sampled_opponents
from beamrank.ranking.input_layout import (
    InputLimits,
    InputTemplate,
    Lengths,
    PackedInputs,
    duo_kept,
)
from models.architectures.protocol import Architecture
from models.scoring.answers import Answers, Contents, Cut
from models.scoring.engine import Prepared, Scores, StageCounts
from models.scoring.packing import ChosenDocs, choose_docs, distinct, number_texts

Asked: TypeAlias = npt.NDArray[np.bool_]
# From a query and the docs that may meet, best first: bool[n, n], the pairs that are asked.
FindAsked: TypeAlias = Callable[[str, Sequence[str]], Asked]


def prepare_duo(
    model: Architecture,
    tokens: pa.Table,
    received: Mapping[str, Sequence[str]],
    limits: InputLimits,
    opponents: int | None,
    seed: int,
) -> Prepared:
    """Prepares the ordered pairs of the docs of each query that a stage receives.

    Inputs that are the same for a query once they are cut are scored once. Rows are
    `beamrank.commit.schemas.DUO`, one a query of `tokens` in its order.

    `tokens` are `beamrank.commit.schemas.tokenized` with the special tokens as metadata, `received`
    the docs of each query, best first. SAMPLE draws so many opponents for a doc by the seed;
    without a number, every pair is asked.
    """

    def asked(query_id: str, doc_ids: Sequence[str]) -> Asked:
        return sampled_opponents(query_id, doc_ids, opponents or len(doc_ids), seed)

    return prepare_pairs(model, tokens, received, limits, asked)


def prepare_pairs(
    model: Architecture,
    tokens: pa.Table,
    chosen: Mapping[str, Sequence[str]],
    limits: InputLimits,
    asked: FindAsked,
) -> Prepared:
    """Prepares the pairs that are asked among the chosen docs of each query."""
    compared = _compare(model, tokens, chosen, limits)
    shard, docs = compared.chosen.shard, compared.chosen
    first, second, cells = _pairs(compared, asked)
    texts = number_texts(shard.tokens, shard.doc_starts[docs.docs], compared.doc_kept)
    rows, inverse = distinct(docs.queries[first], texts[first], texts[second])
    has_pairs = docs.counts > 1
    cut_queries, cut_docs = (
        compared.query_kept < shard.query_lengths,
        compared.doc_kept < shard.doc_lengths[docs.docs],
    )

    def finish(scores: Scores) -> tuple[pa.Table, StageCounts]:
        matrices = np.full(int((docs.counts**2).sum()), np.nan, dtype=np.float32)
        matrices[cells] = scores.log_odds[inverse]
        columns = [
            shard.query_ids,
            pa.ListArray.from_arrays(
                _offsets(docs.counts), shard.doc_ids.take(pa.array(docs.docs))
            ),
            pa.ListArray.from_arrays(_offsets(docs.counts**2), pa.array(matrices)),
        ]
        return pa.table(columns, schema=schemas.DUO), StageCounts(
            **scores.cost,
            queries=tokens.num_rows,
            candidates=int(np.count_nonzero(has_pairs[docs.queries])),
            truncated_queries=int(np.count_nonzero(cut_queries & has_pairs)),
            truncated_docs=int(np.count_nonzero(cut_docs & has_pairs[docs.queries])),
            duplicate_inputs=len(inverse) - len(rows),
        )

    def keys() -> Sequence[bytes]:
        contents = Contents.of(tokens, instructed=False)
        most_tokens = limits.max_length * compared.template.doc_parts
        return _pair_keys(contents, docs.queries, docs.docs, first, second, most_tokens)

    return Prepared(compared.inputs(first[rows], second[rows]), inverse, keys, finish)


def known_duo(duo: pa.Table, tokens: pa.Table, most_tokens: int) -> Answers:
    """The scores of the pairs of a part, by what they contain; `most_tokens` of a doc are read."""
    contents = Contents.of(tokens, instructed=False)
    log_odds = pc.list_flatten(duo["scores"].combine_chunks()).to_numpy()
    doc_ids = duo["doc_ids"].combine_chunks()
    counts = pc.list_value_length(doc_ids).to_numpy().astype(np.int64)
    query_ids = duo["query_id"].take(pc.list_parent_indices(doc_ids)).to_pylist()
    queries, docs = contents.find(query_ids, pc.list_flatten(doc_ids).to_pylist())
    asked = np.flatnonzero(np.isfinite(log_odds))
    sizes = counts**2
    matrices = np.repeat(np.arange(len(sizes)), sizes)[asked]
    pairs = np.divmod(asked - (np.cumsum(sizes) - sizes)[matrices], counts[matrices])
    starts = (np.cumsum(counts) - counts)[matrices]
    first, second = (starts + place for place in pairs)
    keys = _pair_keys(contents, queries, docs, first, second, most_tokens)
    return dict(zip(keys, log_odds[asked].tolist(), strict=True))


def _pair_keys(
    contents: Contents,
    queries: Lengths,
    docs: Lengths,
    first: Lengths,
    second: Lengths,
    most_tokens: int,
) -> list[bytes]:
    """The keys of pairs of docs, which are chosen by their rows and whose queries are given."""
    lengths = np.minimum(contents.doc_lengths[docs], most_tokens)
    nothing = np.zeros_like(lengths)
    cuts = (Cut(docs[rows], nothing[rows], lengths[rows]) for rows in (first, second))
    return contents.keys(queries[first], *cuts)


@dataclass(frozen=True)
class _Compared:
    """The chosen docs of a shard, and the wordpieces kept of each query, int64[q], and doc,
    int64[a], as i or j.
    """

    chosen: ChosenDocs
    template: InputTemplate
    query_kept: Lengths
    doc_kept: Lengths

    def inputs(self, first: Lengths, second: Lengths) -> PackedInputs:
        """The inputs of pairs, by place among the chosen docs."""
        shard, query = self.chosen.shard, self.chosen.queries[first]
        starts = [
            shard.query_starts[query],
            *(shard.doc_starts[self.chosen.docs[each]] for each in (first, second)),
        ]
        kept = [self.query_kept[query], self.doc_kept[first], self.doc_kept[second]]
        return PackedInputs(
            shard.tokens, np.stack(starts, axis=1), np.stack(kept, axis=1), self.template
        )


def _compare(
    model: Architecture,
    tokens: pa.Table,
    received: Mapping[str, Sequence[str]],
    limits: InputLimits,
) -> _Compared:
    chosen = choose_docs(tokens, received)
    shard = chosen.shard
    template = model.template(schemas.special_tokens(tokens.schema))
    lengths, none = shard.doc_lengths[chosen.docs], np.zeros_like(shard.query_lengths)
    query_kept, _, _ = duo_kept(template, limits, shard.query_lengths, none, none)
    _, doc_kept, _ = duo_kept(
        template, limits, shard.query_lengths[chosen.queries], lengths, lengths
    )
    return _Compared(chosen, template, query_kept, doc_kept)


def _pairs(compared: _Compared, asked: FindAsked) -> tuple[Lengths, Lengths, Lengths]:
    """The p pairs that are asked: int64[p], twice by place among the chosen docs, and by cell of
    the flat matrices.
    """
    shard, chosen = compared.chosen.shard, compared.chosen
    found: list[list[Lengths]] = [[np.empty(0, np.int64)] for _ in range(3)]
    start = cell = 0
    for query, count in enumerate(chosen.counts.tolist()):
        doc_ids = shard.doc_ids.take(pa.array(chosen.docs[start : start + count])).to_pylist()
        flat = np.flatnonzero(asked(shard.query_ids[query].as_py(), doc_ids))
        first, second = np.divmod(flat, max(1, count))
        for parts, part in zip(found, (start + first, start + second, cell + flat), strict=True):
            parts.append(part)
        start, cell = start + count, cell + count**2
    first, second, cells = map(np.concatenate, found)
    return first, second, cells


def _offsets(counts: Lengths) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())

"""Docs of which a model read only the beginning: from the lengths of stored tokens and the run's truncation rule."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from beamrank.commit.plan import Plan
from beamrank.commit.stage_record import StageRecord
from beamrank.ranking.input_layout import InputLimits, InputTemplate, Lengths, duo_kept, mono_kept
from beamrank.ranking.segments import SegmentRule, cut_segments

# The models that truncate a doc, by query_id and doc_id.
Truncated = Mapping[tuple[str, str], tuple[str, ...]]


def truncated_docs(plan: Plan, wanted: Collection[tuple[str, str]]) -> Truncated:
    """The wanted candidates, by query_id and doc_id, each with the models whose input holds only a part of its doc.

    A doc that has exactly as many tokens as were stored counts as truncated, since the rest, if any, is unknown. Empty
    before the tokens are made.
    """
    queries = {query_id for query_id, _ in wanted}
    shards = [shard.index for shard in plan.shards if any(topic.query_id in queries for topic in shard.topics)]
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for model in (each for each in plan.stages if "end_tokens" in each.settings):
        stage = plan.stage(model.settings["tokens"])
        manifest = plan.finished(stage.name)
        if manifest is None:
            continue
        for shard in shards:
            part = plan.folder(stage.name).read_part(manifest.receipts[shard])
            for candidate, truncated in _of_part(part, model, stage.keys["max_doc_tokens"]):
                if candidate in wanted:
                    found[candidate] = (*found.get(candidate, ()), *((model.type_name,) if truncated else ()))
    return found


def _of_part(part: Any, model: StageRecord, stored_tokens: int) -> Iterator[tuple[tuple[str, str], bool]]:
    """Whether a model truncates the doc of each candidate of a tokenized part."""
    counts = _lengths(part["doc_ids"])
    docs = _lengths(pc.list_flatten(part["doc_tokens"]))
    read = _read_tokens(model, np.repeat(_lengths(part["query_tokens"]), counts), docs)
    query_ids = np.repeat(np.array(part["query_id"].to_pylist(), object), counts).tolist()
    candidates = zip(query_ids, pc.list_flatten(part["doc_ids"]).to_pylist(), strict=True)
    return zip(candidates, ((read < docs) | (docs >= stored_tokens)).tolist(), strict=True)


def _read_tokens(model: StageRecord, queries: Lengths, docs: Lengths) -> Lengths:
    """How many tokens of each doc a model reads, given the lengths of queries and docs."""
    keys, settings = model.keys, model.settings
    limits = InputLimits(keys["truncation"], keys["max_query_length"], keys["max_length"])
    template = InputTemplate(
        (0,) * settings["start_tokens"],
        tuple((0,) * count for count in settings["end_tokens"]),
        token_types=(),
        pad_id=0,
        doc_parts=settings["doc_parts"],
    )
    if model.type_name == "duo":
        return duo_kept(template, limits, queries, docs, docs)[1]
    rule = keys["segments"]
    segments = cut_segments(docs, None if rule is None else SegmentRule(*rule))
    kept = mono_kept(template, limits, queries[segments.docs], segments.lengths)[1]
    read = np.zeros_like(docs)
    np.maximum.at(read, segments.docs, segments.starts + kept)
    return read


def _lengths(lists: Any) -> Lengths:
    return np.asarray(pc.list_value_length(lists).to_numpy(zero_copy_only=False), np.int64)

"""A finished output of any size without a model: its scores are drawn, and all else is what a run
writes.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from beamrank.commit.plan import read_plan
from beamrank.commit.shards import ShardTask
from beamrank.join import schemas
from beamrank.join.schemas import MONO, Texts, candidates_table, tokenized_table
from benchmarks import synthetic
from benchmarks.subprocess_meter import BEAMRANK, run_metered

_TOKENS = [1, 2, 3, 4]
_MEAN_RANK, _RELEVANCE, _NOISE = 30, 2.0, 0.5
_SEED = 20_261_124


def write_output(
    folder: Path, corpus: Path, passages: int, topics: int, k: int, duo_k: int
) -> Path:
    """Writes the output of a run with mono.k `k` and duo.k `duo_k`, and its qrels; returns the
    output.

    `beamrank run` plans the run and retrieves. The shards of the other stages are committed with
    drawn scores. An earlier call's stages that are the same are kept.
    """
    qrels, output = folder / "qrels.txt", folder / "out"
    duo = {"checkpoint": "embedded:duo", "k": duo_k}
    config = synthetic.write_config(folder, corpus, passages, topics, k, duo=duo, qrels=qrels.name)
    relevant = dict(_relevant(folder / "given.trec", topics, k))
    qrels.write_text("".join(f"{query_id} 0 {doc_id} 1\n" for query_id, doc_id in relevant.items()))
    run_metered([BEAMRANK, "run", config, "--output", output, "--stage", "retrieve"])
    plan = read_plan(str(output))
    for stage in plan.stages[1:]:
        inputs = [manifest for manifest in map(plan.seal, stage.inputs) if manifest is not None]
        done = plan.folder(stage.name).receipts(plan.shard_digests(stage, inputs))
        for task in plan.tasks(stage, inputs):
            if task.shard in done:
                continue
            if stage.type_name == "tokenize":
                table = _tokenized(task, stage.settings["vocab_size"])
            else:
                rng = np.random.default_rng([_SEED, len(stage.inputs), task.shard])
                table = (
                    _mono(task, relevant, rng)
                    if stage.type_name == "mono"
                    else _duo(task, k, duo_k, rng)
                )
            task.commit(table, seconds=1.0, counts={})
        plan.seal(stage.name)
    return output


def _relevant(run: Path, topics: int, k: int) -> Iterator[tuple[str, str]]:
    """One relevant doc for each topic, near the top of its candidates."""
    rng = np.random.default_rng(_SEED)
    ranks = np.minimum(rng.geometric(1 / _MEAN_RANK, topics), k)
    wanted = {topic * k + rank - 1 for topic, rank in enumerate(ranks.tolist())}
    with run.open(encoding="ascii") as lines:
        for number, line in enumerate(lines):
            if number in wanted:
                query_id, _, doc_id, *_ = line.split()
                yield query_id, doc_id


def _tokenized(task: ShardTask, vocab_size: int) -> pa.Table:
    """Each doc has the same few tokens: a report reads none."""
    schema = schemas.tokenized(vocab_size)
    candidates, query_ids = task.inputs[0].read(), [topic.query_id for topic in task.topics]
    tokens = schema.field("query_tokens").type
    queries = Texts.of(pa.array([_TOKENS] * len(query_ids), tokens), query_ids)
    docs = Texts.of(pa.array([_TOKENS], tokens), [""])
    rows = np.zeros(candidates.num_rows, np.int64)
    return tokenized_table(schema, query_ids, queries, candidates, docs, rows)


def _mono(task: ShardTask, relevant: Mapping[str, str], rng: np.random.Generator) -> pa.Table:
    """Noisy scores, higher for the relevant doc."""
    tokenized = task.inputs[0].read()
    query_ids, doc_ids = tokenized["query_id"].to_pylist(), tokenized["doc_ids"].to_pylist()
    found = [
        rng.normal(size=len(docs)) + _RELEVANCE * (np.array(docs) == relevant[query_id])
        for query_id, docs in zip(query_ids, doc_ids, strict=True)
    ]
    candidates = candidates_table(query_ids, doc_ids, found)
    segments = pa.array(np.zeros(candidates.num_rows, np.int16))
    return candidates.append_column(MONO.field("segment"), segments).select(MONO.names)


def _duo(task: ShardTask, k: int, duo_k: int, rng: np.random.Generator) -> pa.Table:
    """The differences of mono's scores, with noise; every query has `k` candidates."""
    mono = task.inputs[-1].read()
    query_ids = mono["query_id"].to_pylist()[::k]
    doc_ids = np.array(mono["doc_id"].to_pylist(), dtype=object).reshape(-1, k)
    scores = mono["score"].to_numpy().reshape(-1, k)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :duo_k]
    head = np.take_along_axis(scores, best, axis=1)
    z = (
        head[:, :, None]
        - head[:, None, :]
        + rng.normal(scale=_NOISE, size=(len(head), duo_k, duo_k))
    )
    z[:, range(duo_k), range(duo_k)] = np.nan
    columns = [
        query_ids,
        np.take_along_axis(doc_ids, best, axis=1).tolist(),
        list(z.reshape(len(z), -1)),
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schemas.DUO, strict=True)],
        schema=schemas.DUO,
    )

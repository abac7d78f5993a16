"""Synthetic collections of any size: passages as long as MS MARCO's, of words as frequent as in
real text.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import csv

from models.checkpoints.checkpoint import resolve_checkpoint

# MS MARCO's passages have 56 words on average; few have more than 120.
_MEAN_WORDS, _LOG_DEVIATION = 56, 0.42
_QUERY_WORDS = 6
_ZIPF = 1.1
_POOL = 1 << 16
_ROWS_AT_ONCE = 1 << 16
_TOPICS_AT_ONCE = 1000
_SEED = 20_261_120
_RUN = {"query_id": pa.string(), "doc_id": pa.string(), "rank": pa.int32(), "score": pa.float32()}
_TREC = ("query_id", "Q0", "doc_id", "rank", "score", "tag")


def write_corpus(path: Path, passages: int, mean_words: int = _MEAN_WORDS) -> None:
    """Writes `passages` lines, id<TAB>text; a larger corpus begins with the smaller one.

    The texts come from a pool of 65,536; reading, hashing and tokenizing do not profit from the
    repetition.
    """
    texts = _texts(mean_words)
    with path.open("w", encoding="ascii") as file:
        for start in range(0, passages, _ROWS_AT_ONCE):
            numbers = range(start, min(start + _ROWS_AT_ONCE, passages))
            file.writelines(f"{number}\t{texts[number * 40_503 % _POOL]}\n" for number in numbers)


def write_config(
    folder: Path,
    corpus: Path,
    passages: int,
    topics: int,
    k: int,
    run: str = "given.trec",
    **more: Any,
) -> Path:
    """Writes a configuration with topics and a run to a folder, for a corpus; the ending of `run`
    says its format, and `more` are further keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_topics(folder / "topics.parquet", topics)
    write_run(folder / run, topics, k, passages)
    values = {
        "run_tag": "synthetic",
        "corpus": {"path": str(corpus), "format": "tsv"},
        "topics": {"path": "topics.parquet", "format": "parquet"},
        "candidates": {"run": run, "k": k},
        "mono": {"checkpoint": "embedded:mono", "k": k},
        "output": "out",
        **more,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def write_top1000(path: Path, topics: int, k: int, passages: int) -> None:
    """A top1000 file: `k` passages for each topic of six words, drawn evenly; sorted by passage, as
    MS MARCO's are.
    """
    rng = np.random.default_rng(_SEED + 1)
    queries, texts = _queries(topics, rng), _texts()
    docs = np.concatenate(
        [
            rng.choice(passages, k, replace=False, shuffle=False).astype(np.int32)
            for _ in range(topics)
        ]
    )
    order = np.argsort(docs, kind="stable")
    with path.open("w", encoding="ascii") as file:
        for start in range(0, len(docs), _ROWS_AT_ONCE):
            rows = order[start : start + _ROWS_AT_ONCE]
            file.writelines(
                f"{topic}\t{doc}\t{queries[topic]}\t{texts[doc * 40_503 % _POOL]}\n"
                for topic, doc in zip((rows // k).tolist(), docs[rows].tolist(), strict=True)
            )


def _write_topics(path: Path, topics: int) -> None:
    rng = np.random.default_rng(_SEED + 1)
    schema = pa.schema({"query_id": pa.string(), "text": pa.string()})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, topics, _ROWS_AT_ONCE):
            ids = np.arange(start, min(start + _ROWS_AT_ONCE, topics)).astype(str)
            writer.write_table(pa.table([ids, _queries(len(ids), rng)], schema=schema))


def _queries(count: int, rng: np.random.Generator) -> list[str]:
    """Six words each."""
    words = vocabulary()
    return list(map(" ".join, words[rng.integers(len(words), size=(count, _QUERY_WORDS))]))


def write_run(path: Path, topics: int, k: int, passages: int) -> None:
    """Writes a run of `k` passages a topic as Parquet, or else as TREC's lines; and qrels.txt
    beside it, with one of them a topic.

    The passages are spread evenly over the whole corpus: the worst case for the join.
    """
    rng, ranks = np.random.default_rng(_SEED + 2), np.arange(1, k + 1)
    is_parquet = path.suffix == ".parquet"
    kinds = _RUN if is_parquet else {name: _RUN.get(name, pa.string()) for name in _TREC}
    schema = pa.schema(kinds)
    with (
        pq.ParquetWriter(path, schema) if is_parquet else _lines(path, schema) as writer,
        path.with_name("qrels.txt").open("w") as qrels,
    ):
        for start in range(0, topics, _TOPICS_AT_ONCE):
            ids = np.arange(start, min(start + _TOPICS_AT_ONCE, topics))
            starts = rng.integers(passages, size=(len(ids), 1))
            docs = rng.permuted((starts + ranks * (passages // k)) % passages, axis=1)
            columns = {
                "query_id": ids.repeat(k).astype(str),
                "Q0": np.full(docs.size, "Q0"),
                "doc_id": docs.ravel().astype(str),
                "rank": np.tile(ranks, len(ids)).astype(np.int32),
                "score": np.tile(ranks[::-1], len(ids)).astype(np.float32),
                "tag": np.full(docs.size, "drawn"),
            }
            writer.write_table(pa.table([columns[name] for name in kinds], schema=schema))
            judged = docs[np.arange(len(ids)), rng.integers(k, size=len(ids))]
            qrels.writelines(
                f"{topic} 0 {doc} 1\n"
                for topic, doc in zip(ids.tolist(), judged.tolist(), strict=True)
            )


def _lines(path: Path, schema: pa.Schema) -> csv.CSVWriter:
    options = csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    return csv.CSVWriter(path, schema, write_options=options)


def _texts(mean_words: int = _MEAN_WORDS) -> list[str]:
    """A pool of texts whose lengths are lognormal and whose words follow Zipf's law."""
    rng, words = np.random.default_rng(_SEED), vocabulary()
    shares = 1 / np.arange(1, len(words) + 1) ** _ZIPF
    mean = np.log(mean_words) - _LOG_DEVIATION**2 / 2
    lengths = rng.lognormal(mean, _LOG_DEVIATION, _POOL).round().astype(np.int64).clip(min=1)
    drawn = words[rng.choice(len(words), int(lengths.sum()), p=shares / shares.sum())]
    return list(map(" ".join, np.split(drawn, np.cumsum(lengths)[:-1])))


def vocabulary() -> npt.NDArray[np.object_]:
    """BERT's whole words, in the order of its vocabulary: the frequent ones first."""
    path = Path(resolve_checkpoint("embedded:mono", "mono").folder) / "vocab.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return np.array(
        [line for line in lines if line.isascii() and line.isalpha() and len(line) > 1],
        dtype=object,
    )

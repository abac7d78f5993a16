"""Small valid files of every format, made by code."""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.fuzz.inputs import to_lines, to_parquet
from contrib.tensorflow2019.examples import tfrecord

ROOT = Path(__file__).parents[2]


def table(names: str, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Columns with these names."""
    return dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True))


def tabs(*rows: Sequence[Any], by: str = "\t") -> bytes:
    """Lines of columns."""
    return "".join(by.join(map(str, row)) + "\n" for row in rows).encode()


def objects(names: str, rows: Sequence[Sequence[Any]]) -> bytes:
    """Lines of JSON with these fields."""
    return to_lines([dict(zip(names.split(), row, strict=True)) for row in rows])


def dumped(*values: Any) -> list[bytes]:
    """JSON, a file each."""
    return [json.dumps(value).encode() for value in values]


_ROWS = (
    ("d1", "amber basil"),
    ("d2", 'cedar "x", y & <b>'),
    ("d3", "é ü 漢字"),
    ("d#4", "dill"),
    ("d5", "elm\u2028fig"),
)
_QUERIES = (("q1", "amber tea"), ("q2", "where is cedar?"), ("q3", "漢字 é"))
_RUN = [
    (q, "Q0", d, rank, 9.5 - rank, "tag")
    for q in ("q1", "q2")
    for rank, (d, _) in enumerate(_ROWS, 1)
]
_RANKED = [(q, d, rank) for q, _, d, rank, *_ in _RUN]
_SCORED = [(q, d, score) for q, _, d, _, score, _ in _RUN]
_QRELS = [(q, 0, d, rank % 3) for q, _, d, rank, *_ in _RUN]
_JUDGED = [(q, d, level) for q, _, d, level in _QRELS]
_CANDIDATES = [{"docid": d, "score": 1.5, "doc": {"contents": text}} for d, text in _ROWS]
_HITS = [{"qid": "q1", "docid": d, "rank": 1, "score": 2.5, "content": text} for d, text in _ROWS]
_REQUESTS = [{"query": {"qid": q, "text": text}, "candidates": _CANDIDATES} for q, text in _QUERIES]
_TEXTS = [text for _, text in _ROWS]

# Docs.
TSV, HEADED_TSV = tabs(*_ROWS), tabs(("id", "text"), *_ROWS)
CSV = tabs(("id", "text"), ("d1", '"a, b\nc"'), ("d2", "x"), by=",")
JSONL, BEIR = objects("id contents", _ROWS), objects("_id text", _ROWS)
JSON_LIST = b"[" + JSONL.strip().replace(b"\n", b",") + b"]"
TITLED, UNTITLED = (
    objects("_id title text", [(d, title, text) for d, text in _ROWS]) for title in ("t", None)
)
PARQUET = to_parquet(table("id contents", _ROWS))
OTHER_PARQUET = to_parquet(
    table("id contents", _ROWS), compression="gzip", use_dictionary=False, data_page_version="2.0"
)
TREC = "".join(
    f"<DOC>\n<DOCNO> {d} </DOCNO>\n<TEXT>\n{text}<p>b</TEXT>\n</DOC>\n" for d, text in _ROWS
).encode()
SMART = "".join(f".I {n}\n.T\ntitle {n}\n.W\n{text}\n" for n, text in enumerate(_TEXTS, 1)).encode()
TOP1000 = tabs(
    *[
        (q, d, f"{query} of words", f"{text} and more words")
        for q, query in _QUERIES
        for d, text in _ROWS
    ]
)
MTEB = to_lines(
    [{"query": query, "positive": _TEXTS[:2], "negative": _TEXTS[2:]} for _, query in _QUERIES]
)
RANK_LLM, HITS = to_lines(_REQUESTS), to_lines([{"query": "amber tea", "hits": _HITS}])
_PARAGRAPHS = [
    [0, d.encode(), [[0, text], [1, [0, "p", None, b"p", "anchor"]]]] for d, text in _ROWS
]
_PARTS = [[1, _PARAGRAPHS[0]], [3, 1, _PARAGRAPHS[1]], [2, b"i", [[1, _PARAGRAPHS[2]]]]]
CAR = b"".join(map(cbor2.dumps, _PARAGRAPHS))
CAR_V2 = cbor2.dumps(["CAR", [2], ["x"]]) + b"\x9f" + CAR + b"\xff"
PAGE = cbor2.dumps([0, "Page", b"enwiki:Page", [[0, "S", b"S%20x", _PARTS]], []])


def _tars(content: bytes) -> Iterator[bytes]:
    for mode in ("w", "w:gz"):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode=mode) as tar:
            header = tarfile.TarInfo("docs.jsonl")
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
        yield sink.getvalue()


TAR, TAR_GZ = _tars(JSONL)

# Topics.
TOPICS_TSV, HEADED_TOPICS = tabs(*_QUERIES), tabs(("qid", "text"), *_QUERIES)
TOPICS_CSV = tabs(("qid", "text"), *_QUERIES, by=",")
TOPICS_JSONL, TOPICS_BEIR = objects("query_id text", _QUERIES), objects("_id text", _QUERIES)
TOPICS_PARQUET = to_parquet(table("query_id text", _QUERIES))
TOPICS_TREC = "".join(
    f"<top>\n<num> Number: {q}\n<title> {text}\n</top>\n" for q, text in _QUERIES
).encode()
TOPICS_XML = b'<x><topic number="1"><query>a</query></topic><topic number="2">b &amp; c</topic></x>'
TOPICS_RANK_LLM = json.dumps(_REQUESTS).encode()
SECTIONS = tabs(("enwiki:Page/S%20x",), ("enwiki:%C3%A9/b",))
JUDGED_SECTIONS = SECTIONS.replace(b"\n", b" 0 d 1\n")

# Qrels, runs, docs to exclude, pairs.
QRELS = (tabs(*_QRELS, by=" "), tabs(*_JUDGED), tabs(("query-id", "corpus-id", "score"), *_JUDGED))
QRELS_JSONL, QRELS_CSV = (
    objects("query_id doc_id relevance", _JUDGED),
    tabs(("qid", "docid", "rel"), *_JUDGED, by=","),
)
QRELS_PARQUET = to_parquet(table("query_id doc_id relevance", _JUDGED))
RUNS = (tabs(*_RUN, by=" "), tabs(*_RANKED), tabs(("qid", "docid", "score"), *_SCORED))
RUN_CSV = tabs(("qid", "docid", "score"), *_SCORED, by=",")
RUN_JSONL = objects(
    "query_id doc_id rank score",
    [(*one, score) for one, (*_, score) in zip(_RANKED, _SCORED, strict=True)],
)
RUN_LISTS = to_lines([{"query-id": q, "corpus-ids": [d for d, _ in _ROWS]} for q, _ in _QUERIES])
RANX = json.dumps(
    {q: {d: score for query, d, score in _SCORED if query == q} for q in ("q1", "q2")}
).encode()
RUN_PARQUET, RUN_COLUMNS = (
    to_parquet(table("query_id doc_id score", _SCORED)),
    table("query_id doc_id rank", _RANKED),
)
EXCLUDED, EXCLUDED_JSONL = (
    tabs(*[row[:2] for row in _RANKED]),
    to_lines([{"query_id": "q1", "doc_id": "d1"}, {"query_id": "q1", "doc_id": "d2"}]),
)
PAIRS = to_parquet(
    table("id query doc extra", [(n, "a b", text, n / 2) for n, text in enumerate(_TEXTS)])
)


# Configurations, also as JSON, which is YAML.
def _configs(*names: str) -> list[bytes]:
    found = [(ROOT / name).read_bytes() for name in names]
    return [*found, *dumped(*map(yaml.safe_load, found))]


CONFIGS = _configs("examples/own_corpus/config.yaml", "configs/beir.yaml")
TRAININGS = _configs("configs/train.yaml", "configs/train-trec-car.yaml")
OVERRIDES = (
    b"mono.k=5",
    b"corpus.path=c.jsonl\0measures=[AP, RR@10]",
    b"mono={checkpoint: embedded:mono, k: 5}",
)

# Collections of papers, and the files of 2019.
NFL6 = dumped(
    [{"id": str(n), "question": "a b?", "answer": "c d", "nbestanswers": ["e"]} for n in range(3)]
)
ARTICLES = dumped({"7": {"0": "a b", "1": "c d"}, "8": {"0": "e"}})
_SPANS = "<NONE><SENTENCE>a b</SENTENCE></NONE><GOOD><SENTENCE>c d</SENTENCE></GOOD>"
_GRADED = [
    f"<DOC><DOCNO>d{n}</DOCNO><TARGET_QID>7</TARGET_QID><TEXT>{_SPANS}</TEXT></DOC>"
    for n in range(3)
]
WEBAP = f"<ROOT>{''.join(_GRADED)}</ROOT>".encode()
_EXAMPLES = {"ids": (np.arange(6), np.array([2, 4])), "label": (np.arange(2), np.array([1, 1]))}
RECORDS = tfrecord.frame(tfrecord.encode(_EXAMPLES))
BERT_CONFIG = dumped({"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                      "intermediate_size": 16, "max_position_embeddings": 24, "type_vocab_size": 2})  # fmt: skip
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
TOKENS = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "cls_token": {"content": "[CLS]"},
          "added_tokens_decoder": {"4": {"content": "[MASK]"}}, "truncation_side": "right"}  # fmt: skip


# How many rows a content has at least.
def lines(content: bytes) -> int:
    """The lines that are not blank."""
    return sum(bool(line.strip()) for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"))


def lines_but_header(content: bytes) -> int:
    """The lines without the first, which can be a header."""
    return max(0, lines(content) - 1)


def numbered_lines(content: bytes) -> int:
    """The lines that have a number: a header has none."""
    return sum(any(map(_is_number, line.split())) for line in content.split(b"\n"))


def _is_number(word: bytes) -> bool:
    try:
        return float(word.decode()) is not None and bool(word.decode().strip())
    except ValueError:
        return False


def json_lines(content: bytes) -> int:
    """The lines of JSON, unless it is one list."""
    return 0 if re.match(rb"\s*[\[{]\s*($|\{|\n)", content) else lines(content)


def trec_docs(content: bytes) -> int:
    """The docs of TREC."""
    return content.upper().count(b"<DOC>")


def smart_records(content: bytes) -> int:
    """The records of SMART."""
    return len(re.findall(rb"(?m)^\.I\s+\S", content))


def parquet_rows(content: bytes) -> int:
    """The rows that a Parquet file states."""
    return int(pq.ParquetFile(pa.BufferReader(content)).metadata.num_rows)

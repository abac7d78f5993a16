"""Small valid files of every format, made by code, and how many rows a content has at least."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.fuzz.inputs import (
    ARROW,
    CBOR,
    JSON,
    LINES,
    PACKED,
    PARQUET,
    RECORDS,
    TEXT,
    Codec,
    to_arrow,
    to_lines,
    to_parquet,
    to_tar,
)
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
_TSV, _JSONL, _BEIR = tabs(*_ROWS), objects("id contents", _ROWS), objects("_id text", _ROWS)
_TITLED, _UNTITLED = (
    objects("_id title text", [(d, title, text) for d, text in _ROWS]) for title in ("t", None)
)
_OTHER = {"compression": "gzip", "use_dictionary": False, "data_page_version": "2.0"}
_TREC = "".join(
    f"<DOC>\n<DOCNO> {d} </DOCNO>\n<TEXT>\n{text}<p>b</TEXT>\n</DOC>\n" for d, text in _ROWS
).encode()
_SMART = "".join(
    f".I {n}\n.T\ntitle {n}\n.W\n{text}\n" for n, text in enumerate(_TEXTS, 1)
).encode()
_TOP1000 = tabs(
    *[
        (q, d, f"{query} of words", f"{text} and more words")
        for q, query in _QUERIES
        for d, text in _ROWS
    ]
)
_MTEB = to_lines(
    [{"query": query, "positive": _TEXTS[:2], "negative": _TEXTS[2:]} for _, query in _QUERIES]
)
_RANK_LLM = to_lines(_REQUESTS)
_PARAGRAPHS = [
    [0, d.encode(), [[0, text], [1, [0, "p", None, b"p", "anchor"]]]] for d, text in _ROWS
]
_PARTS = [[1, _PARAGRAPHS[0]], [3, 1, _PARAGRAPHS[1]], [2, b"i", [[1, _PARAGRAPHS[2]]]]]
_CAR = b"".join(map(cbor2.dumps, _PARAGRAPHS))
_CAR_V2 = cbor2.dumps(["CAR", [2], ["x"]]) + b"\x9f" + _CAR + b"\xff"
_PAGE = cbor2.dumps([0, "Page", b"enwiki:Page", [[0, "S", b"S%20x", _PARTS]], []])
_TAR, _TAR_GZ = to_tar(_JSONL, "w"), to_tar(_JSONL, "w:gz")

# Topics, qrels, runs.
_TOPICS, _TOPICS_JSONL = tabs(*_QUERIES), objects("query_id text", _QUERIES)
_TOPICS_TREC = "".join(
    f"<top>\n<num> Number: {q}\n<title> {text}\n</top>\n" for q, text in _QUERIES
).encode()
_XML = b'<x><topic number="1"><query>a</query></topic><topic number="2">b &amp; c</topic></x>'
_SECTIONS = tabs(("enwiki:Page/S%20x",), ("enwiki:%C3%A9/b",))
_RUNS = (tabs(*_RUN, by=" "), tabs(*_RANKED), tabs(("qid", "docid", "score"), *_SCORED))
_RUN_CSV = tabs(("qid", "docid", "score"), *_SCORED, by=",")
_RUN_JSONL = (
    objects(
        "query_id doc_id rank score", [(q, d, rank, score) for q, _, d, rank, score, _ in _RUN]
    ),
    to_lines([{"query-id": q, "corpus-ids": [d for d, _ in _ROWS]} for q, _ in _QUERIES]),
)
_RANX = json.dumps(
    {q: {d: score for query, d, score in _SCORED if query == q} for q in ("q1", "q2")}
).encode()
_RUN_PARQUET = to_parquet(table("query_id doc_id score", _SCORED))
_EXCLUDED = [row[:2] for row in _RANKED]
_PAIRS = table("id query doc extra", [(n, "a b", text, n / 2) for n, text in enumerate(_TEXTS)])


# Configurations, also as JSON, which is YAML.
def _configs(*names: str) -> list[bytes]:
    contents = [(ROOT / name).read_bytes() for name in names]
    return [*contents, *dumped(*map(yaml.safe_load, contents))]


# Collections of papers, and the files of 2019.
ARTICLES = dumped({"7": {"0": "a b", "1": "c d"}, "8": {"0": "e"}})
_NFL6 = [
    {"id": str(n), "question": "a b?", "answer": "c d", "nbestanswers": ["e"]} for n in range(3)
]
_SPANS = "<NONE><SENTENCE>a b</SENTENCE></NONE><GOOD><SENTENCE>c d</SENTENCE></GOOD>"
_GRADED = [
    f"<DOC><DOCNO>d{n}</DOCNO><TARGET_QID>7</TARGET_QID><TEXT>{_SPANS}</TEXT></DOC>"
    for n in range(3)
]
_EXAMPLES = {"ids": (np.arange(6), np.array([2, 4])), "label": (np.arange(2), np.array([1, 1]))}
_BERT = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 16, "max_position_embeddings": 24, "type_vocab_size": 2}  # fmt: skip
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
TOKENS = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "cls_token": {"content": "[CLS]"},
          "added_tokens_decoder": {"4": {"content": "[MASK]"}}, "truncation_side": "right"}  # fmt: skip


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


class File(NamedTuple):
    """A kind of file: its name, contents, what takes them apart, and at least how many rows a
    content has.
    """

    name: str
    contents: Sequence[bytes]
    codec: Codec | None = None
    rows: Callable[[bytes], int] = lambda _: 0


def _packed(name: str, content: bytes) -> dict[str, File]:
    """A file in each compression."""
    return {
        ending: File(f"{name}.{ending}", [codec.dump([content])], codec)
        for ending, codec in PACKED.items()
    }


# fmt: off
# By the kind of reader, and what is read.
FILES: Mapping[str, Mapping[str, File]] = {
    "corpus": {
        "auto": File("docs.txt", (_TSV, _JSONL, _BEIR, _TREC, _SMART, _TOP1000)),
        "tsv": File("docs.tsv", (_TSV, tabs(("id", "text"), *_ROWS)), TEXT, lines_but_header),
        "csv": File("docs.csv", (tabs(("id", "text"), ("d1", '"a, b\nc"'), ("d2", "x"), by=","),), TEXT),
        "jsonl": File("docs.jsonl", (_JSONL,), LINES, json_lines),
        "json list": File("docs.json", (b"[" + _JSONL.strip().replace(b"\n", b",") + b"]",), JSON),
        "beir": File("docs.jsonl", (_BEIR, _TITLED), LINES, json_lines),
        "template": File("docs.jsonl", (_UNTITLED,), LINES),
        "parquet": File("docs.parquet", (to_parquet(table("id contents", _ROWS)), to_parquet(table("id contents", _ROWS), **_OTHER)), PARQUET, parquet_rows),
        "top1000": File("top.tsv", (_TOP1000,), TEXT, lines),
        "trec": File("docs", (_TREC,), TEXT, trec_docs),
        "smart": File("docs.all", (_SMART,), TEXT, smart_records),
        "car": File("docs.cbor", (_CAR, _CAR_V2), CBOR),
        "car-pages": File("docs.cbor", (_PAGE * 2,), CBOR),
        "mteb": File("docs.jsonl", (_MTEB,), LINES),
        "rank_llm": File("docs.jsonl", (_RANK_LLM, to_lines([{"query": "amber tea", "hits": _HITS}])), LINES),
        "tar": File("docs.jsonl.tar", (_TAR,)),
        "tar.gz": File("docs.jsonl.tar.gz", (_TAR_GZ,), PACKED["gz"]),
        **_packed("docs.jsonl", _JSONL),
    },
    "topics": {
        "auto": File("t.txt", (_TOPICS, _TOPICS_JSONL, _SECTIONS, _TOP1000, _SMART)),
        "tsv": File("t.tsv", (_TOPICS, tabs(("qid", "text"), *_QUERIES)), TEXT, lines_but_header),
        "csv": File("t.csv", (tabs(("qid", "text"), *_QUERIES, by=","),), TEXT),
        "jsonl": File("t.jsonl", (_TOPICS_JSONL,), LINES),
        "beir": File("t.jsonl", (objects("_id text", _QUERIES),), LINES),
        "parquet": File("t.parquet", (to_parquet(table("query_id text", _QUERIES)),), PARQUET, parquet_rows),
        "trec": File("t.xml", (_TOPICS_TREC, _XML), TEXT),
        "smart": File("t.qry", (_SMART,), TEXT, smart_records),
        "top1000": File("t.tsv", (_TOP1000,), TEXT),
        "car": File("t.txt", (_SECTIONS,), TEXT, lines),
        "car-outlines": File("t.cbor", (_PAGE,), CBOR),
        "car-qrels": File("t.txt", (_SECTIONS.replace(b"\n", b" 0 d 1\n"),), TEXT),
        "mteb": File("t.jsonl", (_MTEB,), LINES),
        "rank_llm": File("t.json", (json.dumps(_REQUESTS).encode(),), JSON),
    },
    "qrels": {
        "": File("q.txt", (tabs(*_QRELS, by=" "), tabs(*_JUDGED), tabs(("query-id", "corpus-id", "score"), *_JUDGED)), TEXT, numbered_lines),
        "jsonl": File("q.jsonl", (objects("query_id doc_id relevance", _JUDGED), _MTEB), LINES),
        "csv": File("q.csv", (tabs(("qid", "docid", "rel"), *_JUDGED, by=","),), TEXT),
        "parquet": File("q.parquet", (to_parquet(table("query_id doc_id relevance", _JUDGED)),), PARQUET, parquet_rows),
    },
    "run": {
        "": File("r.trec", _RUNS, TEXT, numbered_lines),
        "csv": File("r.csv", (_RUN_CSV,), TEXT),
        "jsonl": File("r.jsonl", _RUN_JSONL, LINES),
        "ranx": File("r.json", (_RANX,), JSON),
        "parquet": File("r.parquet", (_RUN_PARQUET,), PARQUET, parquet_rows),
        "arrow": File("r.arrow", (to_arrow(table("query_id doc_id rank", _RANKED)),), ARROW),
        **_packed("r.trec", _RUNS[0]),
    },
    "given run": {
        "": File("g.trec", (*_RUNS, _RUN_CSV), TEXT),
        "jsonl": File("g.jsonl", (*_RUN_JSONL, _RANK_LLM, _MTEB, _RANX), LINES),
        "top1000": File("g.tsv", (_TOP1000,), TEXT, lines),
        "parquet": File("g.parquet", (_RUN_PARQUET,), PARQUET, parquet_rows),
    },
    "lint": {"": File("l.trec", _RUNS, TEXT)},
    "excluded docs": {
        "": File("x.txt", (tabs(*_EXCLUDED),), TEXT),
        "jsonl": File("x.jsonl", (objects("query_id doc_id", _EXCLUDED[:2]),), LINES),
    },
    "pairs": {"": File("p.parquet", (to_parquet(_PAIRS),), PARQUET, parquet_rows)},
    "stream": {"tar": File("s.tar", (_TAR,)), **_packed("s", _TREC)},
    "configuration": {"": File("c.yaml", _configs("examples/own_corpus/config.yaml", "configs/beir.yaml"), JSON)},
    "--set": {"": File("c.txt", (b"mono.k=5", b"corpus.path=c.jsonl\0measures=[AP, RR@10]", b"mono={checkpoint: embedded:mono, k: 5}"))},
    "training configuration": {"": File("c.yaml", _configs("configs/train.yaml", "configs/train-trec-car.yaml"), JSON)},
    "TFRecord": {"": File("x.tfrecord", (tfrecord.frame(tfrecord.encode(_EXAMPLES)),), RECORDS)},
    "bert_config.json": {"": File("bert_config.json", dumped(_BERT), JSON)},
    "nfL6": {"": File("nfL6.json", dumped(_NFL6), JSON)},
    "WebAP": {"": File("g.xml", (f"<ROOT>{''.join(_GRADED)}</ROOT>".encode(),))},
}
# fmt: on

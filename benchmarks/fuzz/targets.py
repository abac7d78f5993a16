"""Everything that beamrank reads: a table of files, what lies around them, and what reads them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from safetensors.numpy import save
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordPiece
from tokenizers.normalizers import NFKC, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Metaspace

from beamrank.commit import listing
from beamrank.commit.plan import Plan
from beamrank.commit.scans import ScanReport
from beamrank.commit.shards import cut_shards
from beamrank.commit.stage import StageRecord, described
from beamrank.commit.status import Retry
from beamrank.join import schemas
from beamrank.join.schemas import candidates_table
from beamrank.records import Topic
from beamrank.storage.documents import checked_values
from beamrank.storage.row_files import write_rows
from benchmarks.fuzz import readers as read
from benchmarks.fuzz import seeds
from benchmarks.fuzz.inputs import (
    ARROW,
    CBOR,
    JSON,
    LINES,
    PACKED,
    PARQUET,
    RECORDS,
    SAFETENSORS,
    TEXT,
    Codec,
    to_arrow,
)
from contrib.tensorflow2019.original_bert import read_config
from models.architectures.families import bert_shape, bert_tensors
from models.architectures.protocol import ModelFiles
from models.lucene.index import IndexInfo, files_digest, read_written_info

Made: TypeAlias = tuple[str, Sequence[bytes]]
Make = Callable[[Path], Made]
Rows = Callable[[bytes], int]
ROOT = seeds.ROOT


class Target(NamedTuple):
    """A kind of file.

    Attributes:
        name: the kind's.
        make: makes what must lie around a file in an empty folder; returns the file's path and
            valid contents.
        read: reads a file; returns how many rows it read and counted.
        codec: takes a content apart.
        rows: at least how many rows a content has.
    """

    name: str
    make: Make
    read: Callable[[str], int]
    codec: Codec | None = None
    rows: Rows = lambda _: 0


def _file(name: str, *contents: bytes) -> Make:
    return lambda folder: (str(folder / name), contents)


def _tiny(name: str, *contents: bytes) -> Make:
    """A file of a checkpoint whose weights are zeros."""

    def make(folder: Path) -> Made:
        config = json.loads((ROOT / "models/embedded/mono/config.json").read_text())
        config |= {
            "hidden_size": 4,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
        }
        config["vocab_size"] = 9
        shapes = bert_tensors(bert_shape(ModelFiles("tiny", config), config["type_vocab_size"]), 2)
        is_index = name.endswith(".index.json")
        folder.joinpath("config.json").write_text(json.dumps(config))
        weights = folder / ("a.safetensors" if is_index else "model.safetensors")
        weights.write_bytes(
            save({key: np.zeros(shape, np.float16) for key, shape in shapes.items()})
        )
        index = seeds.dumped({"metadata": {}, "weight_map": dict.fromkeys(shapes, "a.safetensors")})
        return str(folder / name), contents or (
            index if is_index else [(folder / name).read_bytes()]
        )

    return make


def _words(name: str, *contents: bytes) -> Make:
    """A file of a small tokenizer, of WordPiece and Unigram."""

    def make(folder: Path) -> Made:
        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b")
        wordpiece = Tokenizer(
            WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
        )
        unigram = Tokenizer(Unigram([(word, -1.5) for word in words], 1, False))
        for tokenizer in (wordpiece, unigram):
            tokenizer.add_special_tokens(list(words[:5]))
        wordpiece.normalizer, wordpiece.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
        unigram.normalizer, unigram.pre_tokenizer = NFKC(), Metaspace()
        made = [tokenizer.to_str().encode() for tokenizer in (wordpiece, unigram)]
        folder.joinpath("tokenizer.json").write_bytes(made[0])
        folder.joinpath("tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        return str(folder / name), contents or made

    return make


def _write_output(folder: str) -> None:
    """The output of a finished run of two stages, with all kinds of documents."""
    first = StageRecord(
        "bm25",
        "retrieve",
        "retrieve",
        described(schemas.CANDIDATES),
        (),
        True,
        {"k": 2},
        run_name="bm25",
    )
    mono = StageRecord(
        "mono",
        "mono",
        "mono",
        described(schemas.CANDIDATES),
        ("retrieve",),
        run_name="mono",
        input_docs=1,
    )
    topics = [Topic(f"q{number}", f"text {number}") for number in range(6)]
    plan = Plan("tag", folder, cut_shards(topics, 3), (first, mono), {"run_tag": "tag"})
    plan.publish()
    for stage in plan.stages:
        digests = plan.shard_digests(
            stage, [found for name in stage.inputs if (found := plan.seal(name))]
        )
        for shard, each in enumerate(plan.shards):
            query_ids = sorted(topic.query_id for topic in each.topics)
            table = candidates_table(
                query_ids, [["d1", "d2"]] * len(query_ids), [np.array([2.0, 1.0])] * len(query_ids)
            )
            plan.folder(stage.name).commit(
                shard, digests[shard], table, seconds=1.5, counts={"rows": len(table)}
            )
        plan.seal(stage.name)
    ScanReport(0, 10, 0, ()).publish(plan.folder("mono").url, "c0" * 32)
    Retry(plan.digest, "mono", "a worker died", 1.0).publish(folder)


def _output(pattern: str) -> Make:
    """A file of an output; JSON without its digest, so that changes of its values are seen as
    values.
    """

    def make(folder: Path) -> Made:
        _write_output(str(folder))
        path = sorted(folder.glob(pattern))[0]
        content = path.read_bytes()
        return str(path), seeds.dumped(checked_values(content)) if path.suffix == ".json" else [
            content
        ]

    return make


def _bundle(folder: Path) -> Made:
    for path in ROOT.glob("tests/support/data/tensorflow1/*"):
        folder.joinpath(path.name).write_bytes(path.read_bytes())
    path = folder / "model.ckpt-7.index"
    return str(path), [path.read_bytes()]


def _articles(folder: Path) -> Made:
    for number, name in enumerate(("train", "dev", "test")):
        header = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")
        folder.joinpath(f"{name}.tsv").write_bytes(
            seeds.tabs(header, (number, "a b?", "7", "Name", "0,1"))
        )
    return str(folder / "document_passages.json"), seeds.ARTICLES


def _rows_file(folder: Path) -> Made:
    schema = pa.schema({"number": pa.int64(), "text": pa.string()})
    path = write_rows(
        str(folder), "tasks-", schema, iter([{"number": n, "text": f"t{n}"} for n in range(70)])
    )
    return path, [Path(path).read_bytes()]


def _packed(kind: str, name: str, content: bytes, reader: Callable[[str], int]) -> list[Target]:
    """A file in each compression."""
    return [
        Target(f"{kind} {ending}", _file(f"{name}.{ending}", codec.dump([content])), reader, codec)
        for ending, codec in PACKED.items()
    ]


_INDEX = IndexInfo(digest=files_digest({}), files={}, docs=3).to_json()
_ANY_DOCS = (seeds.TSV, seeds.JSONL, seeds.BEIR, seeds.TREC, seeds.SMART, seeds.TOP1000)
_ANY_TOPICS = (seeds.TOPICS_TSV, seeds.TOPICS_JSONL, seeds.SECTIONS, seeds.TOP1000, seeds.SMART)
_GIVEN_JSON = (seeds.RUN_JSONL, seeds.RUN_LISTS, seeds.RANK_LLM, seeds.MTEB, seeds.RANX)
_TSV, _TRAIN = (seeds.TSV, seeds.HEADED_TSV), seeds.TRAININGS
_PROMPTS = seeds.dumped({"prompts": {}, "default_prompt_name": None})
_MAP = seeds.dumped({"cls_token": "[CLS]", "pad_token": {"content": "[PAD]"}})
_DOCUMENTS: Mapping[str, tuple[str, Codec]] = {
    "pointer": (listing.CURRENT, JSON),
    "plan": ("plan-*", JSON),
    "receipt": ("mono/receipts/00001-*", JSON),
    "manifest": ("mono/manifest-*", JSON),
    "scan report": ("mono/scans/unit-*", JSON),
    "retry": ("retry-*", JSON),
    "machine": ("machines/*", JSON),
    "part": ("mono/part-00001-*", PARQUET),
    "topics": ("topics-*", PARQUET),
}

# fmt: off
# ruff: noqa: E501
TARGETS: Sequence[Target] = (
    Target("corpus auto", _file("docs.txt", *_ANY_DOCS), read.corpus()),
    Target("corpus tsv", _file("docs.tsv", *_TSV), read.corpus("tsv"), TEXT, seeds.lines_but_header),
    Target("corpus csv", _file("docs.csv", seeds.CSV), read.corpus("csv"), TEXT),
    Target("corpus jsonl", _file("docs.jsonl", seeds.JSONL), read.corpus("jsonl"), LINES, seeds.json_lines),
    Target("corpus json list", _file("docs.json", seeds.JSON_LIST), read.corpus("jsonl"), JSON),
    Target("corpus beir", _file("docs.jsonl", seeds.BEIR, seeds.TITLED), read.corpus("beir"), LINES, seeds.json_lines),
    Target("corpus template", _file("docs.jsonl", seeds.UNTITLED), read.corpus("beir", template="{title}: "
        "{text}"), LINES),
    Target("corpus parquet", _file("docs.parquet", seeds.PARQUET, seeds.OTHER_PARQUET), read.corpus("parquet"), PARQUET, seeds.parquet_rows),
    Target("corpus top1000", _file("top.tsv", seeds.TOP1000), read.corpus("top1000"), TEXT, seeds.lines),
    Target("corpus trec", _file("docs", seeds.TREC), read.corpus("trec"), TEXT, seeds.trec_docs),
    Target("corpus smart", _file("docs.all", seeds.SMART), read.corpus("smart"), TEXT, seeds.smart_records),
    Target("corpus car", _file("docs.cbor", seeds.CAR, seeds.CAR_V2), read.corpus("car"), CBOR),
    Target("corpus car-pages", _file("docs.cbor", seeds.PAGE * 2), read.corpus("car-pages"), CBOR),
    Target("corpus mteb", _file("docs.jsonl", seeds.MTEB), read.corpus("mteb"), LINES),
    Target("corpus rank_llm", _file("docs.jsonl", seeds.RANK_LLM, seeds.HITS), read.corpus("rank_llm"), LINES),
    Target("corpus tar", _file("docs.jsonl.tar", seeds.TAR), read.corpus("jsonl")),
    Target("corpus tar.gz", _file("docs.jsonl.tar.gz", seeds.TAR_GZ), read.corpus("jsonl"), PACKED["gz"]),
    *_packed("corpus", "docs.jsonl", seeds.JSONL, read.corpus("jsonl")),
    Target("topics auto", _file("t.txt", *_ANY_TOPICS), read.topics()),
    Target("topics tsv", _file("t.tsv", seeds.TOPICS_TSV, seeds.HEADED_TOPICS), read.topics("tsv"), TEXT, seeds.lines_but_header),
    Target("topics csv", _file("t.csv", seeds.TOPICS_CSV), read.topics("csv"), TEXT),
    Target("topics jsonl", _file("t.jsonl", seeds.TOPICS_JSONL), read.topics("jsonl"), LINES),
    Target("topics beir", _file("t.jsonl", seeds.TOPICS_BEIR), read.topics("beir"), LINES),
    Target("topics parquet", _file("t.parquet", seeds.TOPICS_PARQUET), read.topics("parquet"), PARQUET, seeds.parquet_rows),
    Target("topics trec", _file("t.xml", seeds.TOPICS_TREC, seeds.TOPICS_XML), read.topics("trec"), TEXT),
    Target("topics smart", _file("t.qry", seeds.SMART), read.topics("smart"), TEXT, seeds.smart_records),
    Target("topics top1000", _file("t.tsv", seeds.TOP1000), read.topics("top1000"), TEXT),
    Target("topics car", _file("t.txt", seeds.SECTIONS), read.topics("car"), TEXT, seeds.lines),
    Target("topics car-outlines", _file("t.cbor", seeds.PAGE), read.topics("car-outlines", decoding="original"), CBOR),
    Target("topics car-qrels", _file("t.txt", seeds.JUDGED_SECTIONS), read.topics("car-qrels"), TEXT),
    Target("topics mteb", _file("t.jsonl", seeds.MTEB), read.topics("mteb"), LINES),
    Target("topics rank_llm", _file("t.json", seeds.TOPICS_RANK_LLM), read.topics("rank_llm"), JSON),
    Target("qrels", _file("q.txt", *seeds.QRELS), read.qrels, TEXT, seeds.numbered_lines),
    Target("qrels jsonl", _file("q.jsonl", seeds.QRELS_JSONL, seeds.MTEB), read.qrels, LINES),
    Target("qrels csv", _file("q.csv", seeds.QRELS_CSV), read.qrels, TEXT),
    Target("qrels parquet", _file("q.parquet", seeds.QRELS_PARQUET), read.qrels, PARQUET, seeds.parquet_rows),
    Target("run", _file("r.trec", *seeds.RUNS), read.run, TEXT, seeds.numbered_lines),
    Target("run csv", _file("r.csv", seeds.RUN_CSV), read.run, TEXT),
    Target("run jsonl", _file("r.jsonl", seeds.RUN_JSONL, seeds.RUN_LISTS), read.run, LINES),
    Target("run ranx", _file("r.json", seeds.RANX), read.run, JSON),
    Target("run parquet", _file("r.parquet", seeds.RUN_PARQUET), read.run, PARQUET, seeds.parquet_rows),
    Target("run arrow", _file("r.arrow", to_arrow(seeds.RUN_COLUMNS)), read.run, ARROW),
    *_packed("run", "r.trec", seeds.RUNS[0], read.run),
    Target("given run", _file("g.trec", *seeds.RUNS, seeds.RUN_CSV), read.given_run, TEXT),
    Target("given run jsonl", _file("g.jsonl", *_GIVEN_JSON), read.given_run, LINES),
    Target("given run top1000", _file("g.tsv", seeds.TOP1000), read.given_run, TEXT, seeds.lines),
    Target("given run parquet", _file("g.parquet", seeds.RUN_PARQUET), read.given_run, PARQUET, seeds.parquet_rows),
    Target("lint", _file("l.trec", *seeds.RUNS), read.linted_run, TEXT),
    Target("excluded docs", _file("x.txt", seeds.EXCLUDED), read.excluded, TEXT),
    Target("excluded docs jsonl", _file("x.jsonl", seeds.EXCLUDED_JSONL), read.excluded, LINES),
    Target("pairs", _file("p.parquet", seeds.PAIRS), read.pairs, PARQUET, seeds.parquet_rows),
    Target("stream tar", _file("s.tar", seeds.TAR), read.stream),
    *_packed("stream", "s", seeds.TREC, read.stream),
    Target("configuration", _file("c.yaml", *seeds.CONFIGS), read.configuration, JSON),
    Target("--set", _file("c.txt", *seeds.OVERRIDES), read.overrides),
    Target("training configuration", _file("c.yaml", *_TRAIN), read.training, JSON),
    Target("config.json", _tiny("config.json"), read.checkpoint, JSON),
    Target("safetensors", _tiny("model.safetensors"), read.checkpoint, SAFETENSORS),
    Target("safetensors.index.json", _tiny("model.safetensors.index.json"), read.checkpoint, JSON),
    Target("modules.json", _tiny("modules.json", *seeds.dumped(seeds.MODULES)), read.checkpoint, JSON),
    Target("prompts", _tiny("config_sentence_transformers.json", *_PROMPTS), read.checkpoint, JSON),
    Target("tokenizer.json", _words("tokenizer.json"), read.tokenizer, JSON),
    Target("tokenizer_config.json", _words("tokenizer_config.json", *seeds.dumped(seeds.TOKENS)), read.tokenizer, JSON),
    Target("special_tokens_map.json", _words("special_tokens_map.json", *_MAP), read.tokenizer, JSON),
    Target("TensorFlow's index", _bundle, read.variables),
    Target("TFRecord", _file("x.tfrecord", seeds.RECORDS), read.records, RECORDS),
    Target("bert_config.json", _file("bert_config.json", *seeds.BERT_CONFIG), lambda path: bool(read_config(path)), JSON),
    Target("nfL6", _file("nfL6.json", *seeds.NFL6), read.collection, JSON),
    Target("WikiPassageQA", _articles, read.collection, JSON),
    Target("WebAP", _file("g.xml", seeds.WEBAP), read.graded),
    Target("plan", _output("plan-*"), read.plan, JSON),
    Target("list of topics", _output("topics-*"), read.listed_topics, PARQUET),
    Target("part", _output("mono/part-*"), read.part, PARQUET),
    Target("stored rows", _rows_file, read.stored_rows, PARQUET),
    Target("index record", _file("beamrank.json", _INDEX), lambda path: bool(read_written_info(str(Path(path).parent))), JSON),
    *(Target(f"output: {name}", _output(pattern), read.output, codec) for name, (pattern, codec) in _DOCUMENTS.items()),
)
# fmt: on


def named(name: str) -> Target:
    """A target."""
    return next(each for each in TARGETS if each.name == name)

"""Everything that beamrank reads: a table of files, what lies around them, and what reads them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordPiece
from tokenizers.normalizers import NFKC, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Metaspace

from beamrank.commit import listing
from beamrank.commit.status import Retry
from beamrank.storage.documents import checked_values
from beamrank.storage.row_files import write_rows
from benchmarks.fuzz import readers as read
from benchmarks.fuzz import seeds
from benchmarks.fuzz.inputs import JSON, PACKED, PARQUET, SAFETENSORS, Codec
from contrib.tensorflow2019.original_bert import read_config
from models.lucene.index import IndexInfo, files_digest, read_written_info
from tests.support.checkpoints import save_tiny
from tests.support.outputs import finished_output

Made: TypeAlias = tuple[str, Sequence[bytes]]
Make = Callable[[Path], Made]
Read = Callable[[str], int]
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
    read: Read
    codec: Codec | None = None
    rows: Callable[[bytes], int] = lambda _: 0


def _file(name: str, *contents: bytes) -> Make:
    return lambda folder: (str(folder / name), contents)


def _tiny(name: str, *contents: bytes) -> Make:
    """A file of a tiny checkpoint."""

    def make(folder: Path) -> Made:
        save_tiny(folder, vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)
        made = contents
        if name.endswith(".index.json"):
            weights = folder.joinpath("model.safetensors").rename(folder / "a.safetensors")
            names = dict.fromkeys(load_file(weights), weights.name)
            made = tuple(seeds.dumped({"metadata": {}, "weight_map": names}))
        return str(folder / name), made or [(folder / name).read_bytes()]

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


def _output(pattern: str) -> Make:
    """A file of an output; JSON without its digest, so that changes of its values are seen as
    values.
    """

    def make(folder: Path) -> Made:
        plan = finished_output(str(folder))
        Retry(plan.digest, "mono", "a worker died", 1.0).publish(plan.output)
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


_PROMPTS = seeds.dumped({"prompts": {}, "default_prompt_name": None})
_MAP = seeds.dumped({"cls_token": "[CLS]", "pad_token": {"content": "[PAD]"}})
_INDEX = IndexInfo(digest=files_digest({}), files={}, docs=3).to_json()
# By the kinds of `seeds.FILES`; of corpora and topics the keys of a configuration where they are
# not the format alone.
_KEYS: Mapping[tuple[str, str], Mapping[str, str]] = {
    **{("corpus", name): {"format": "jsonl"} for name in ("json list", "tar", "tar.gz", *PACKED)},
    ("corpus", "template"): {"format": "beir", "template": "{title}: {text}"},
    ("topics", "car-outlines"): {"format": "car-outlines", "decoding": "original"},
}
_READERS: Mapping[str, Read] = {
    "qrels": read.qrels,
    "run": read.run,
    "given run": read.given_run,
    "lint": read.linted_run,
    "excluded docs": read.excluded,
    "pairs": read.pairs,
    "stream": read.stream,
    "configuration": read.configuration,
    "--set": read.overrides,
    "training configuration": read.training,
    "TFRecord": read.records,
    "bert_config.json": lambda path: bool(read_config(path)),
    "nfL6": read.collection,
    "WebAP": read.graded,
}
# Files that need others around them.
_MADE: Mapping[str, tuple[Make, Read, Codec | None]] = {
    "config.json": (_tiny("config.json"), read.checkpoint, JSON),
    "safetensors": (_tiny("model.safetensors"), read.checkpoint, SAFETENSORS),
    "safetensors.index.json": (_tiny("model.safetensors.index.json"), read.checkpoint, JSON),
    "modules.json": (_tiny("modules.json", *seeds.dumped(seeds.MODULES)), read.checkpoint, JSON),
    "prompts": (_tiny("config_sentence_transformers.json", *_PROMPTS), read.checkpoint, JSON),
    "tokenizer.json": (_words("tokenizer.json"), read.tokenizer, JSON),
    "tokenizer_config.json": (
        _words("tokenizer_config.json", *seeds.dumped(seeds.TOKENS)),
        read.tokenizer,
        JSON,
    ),
    "special_tokens_map.json": (_words("special_tokens_map.json", *_MAP), read.tokenizer, JSON),
    "TensorFlow's index": (_bundle, read.variables, None),
    "WikiPassageQA": (_articles, read.collection, JSON),
    "plan": (_output("plan-*"), read.plan, JSON),
    "list of topics": (_output("topics-*"), read.listed_topics, PARQUET),
    "part": (_output("mono/part-*"), read.part, PARQUET),
    "stored rows": (_rows_file, read.stored_rows, PARQUET),
    "index record": (
        _file("beamrank.json", _INDEX),
        lambda path: bool(read_written_info(str(Path(path).parent))),
        JSON,
    ),
    **{
        f"output: {name}": (_output(pattern), read.output, JSON)
        for name, pattern in {
            "pointer": listing.CURRENT,
            "plan": "plan-*",
            "receipt": "mono/receipts/00001-*",
            "manifest": "mono/manifest-*",
            "scan report": "tokenize-*/scans/unit-*",
            "retry": "retry-*",
            "machine": "machines/*",
        }.items()
    },
    "output: part": (_output("mono/part-00001-*"), read.output, PARQUET),
    "output: topics": (_output("topics-*"), read.output, PARQUET),
}


def _targets() -> Iterator[Target]:
    for kind, files in seeds.FILES.items():
        for name, file in files.items():
            keys = _KEYS.get((kind, name), {"format": name})
            reader = {"corpus": read.corpus, "topics": read.topics}.get(kind)
            make = _file(file.name, *file.contents)
            read_file = reader(**keys) if reader else _READERS[kind]
            yield Target(f"{kind} {name}".strip(), make, read_file, file.codec, file.rows)
    for name, made in _MADE.items():
        yield Target(name, *made)


TARGETS = tuple(_targets())


def named(name: str) -> Target:
    """A target."""
    return next(target for target in TARGETS if target.name == name)

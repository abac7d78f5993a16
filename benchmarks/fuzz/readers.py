"""What reads each kind of file; each returns how many rows it read and counted, and checks what it
can.
"""

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from beamrank.commit import listing
from beamrank.commit.check import find_garbage, verify_stages
from beamrank.commit.plan import read_plan
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import read_shards
from beamrank.commit.stage import described
from beamrank.commit.status import read_status, shard_attempts
from beamrank.config.load import load_config
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.excluded import read_excluded
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.run_units import DigestedRun, RunReader, RunUnit
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import NO_HINTS
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage.digested import DigestedFile, RowRange, digest_file
from beamrank.storage.documents import SHORT, holds_content, sha256
from beamrank.storage.row_files import open_rows, read_rows
from beamrank.storage.streams import open_stream
from benchmarks.fuzz.seeds import ROOT
from contrib.lint.linter import lint_run
from contrib.pairs.tables import find_pairs, read_pairs
from contrib.papers.questions import read_nfl6, read_wikipassageqa
from contrib.papers.webap import read_graded
from contrib.tensorflow2019.examples import tfrecord
from contrib.tensorflow2019.tensor_bundle import TensorBundle
from models.checkpoints.checkpoint import resolve_checkpoint
from models.tokenizers.library import load_tokenizer
from models.training.config import load_train_config

Read = Callable[[str], int]
_UNIT_BYTES = 1 << 26


def corpus(**keys: Any) -> Read:
    """A corpus; some files are also read in small units, which hold the same docs."""

    def read(path: str) -> int:
        config = CorpusConfig(path=path, **keys)
        ids, texts, bad = docs = _docs(config, _UNIT_BYTES)
        with suppress(BeamrankError):  # What looks like a paragraph of CBOR need not be one.
            assert not _is_drawn(path) or _docs(config, 64) == docs, "small units have other docs"
        assert len(ids) == len(texts) == len([text.encode() for text in texts])
        return len(ids) + bad

    return read


def _docs(config: CorpusConfig, unit_bytes: int) -> tuple[list[str], list[str], int]:
    rejects = Rejects("docs", NO_LIMIT)
    batches = [
        batch for unit in list_units(config, unit_bytes) for batch in read_unit(unit, rejects)
    ]
    ids, texts = (
        [value for batch in batches for value in getattr(batch, name)]
        for name in ("doc_ids", "texts")
    )
    return ids, texts, rejects.count


def _is_drawn(path: str) -> bool:
    return zlib.crc32(Path(path).read_bytes()) % 8 == 0


def _counted(rows: int, rejects: Rejects, path: str) -> int:
    """The rows that were read or left out; the file of those left out is sometimes written."""
    if _is_drawn(path):
        rejects.as_file()
    return rows + rejects.count


def topics(**keys: Any) -> Read:
    """Topics."""

    def read(path: str) -> int:
        rejects = Rejects("topics", NO_LIMIT)
        read = read_topics(TopicsConfig(path=path, **keys), rejects)
        return _counted(len(read), rejects, path)

    return read


def qrels(path: str) -> int:
    """Qrels."""
    rejects = Rejects("qrels", NO_LIMIT)
    judged = read_qrels(path, rejects=rejects)
    assert sum(map(len, judged.relevance.values())) == judged.notes.judgments
    return _counted(
        judged.notes.judgments + judged.notes.repeated + judged.notes.comments, rejects, path
    )


def run(path: str) -> int:
    """A run, read whole."""
    rejects = Rejects("run", NO_LIMIT)
    ranked = read_run(path, rejects=rejects)
    return _counted(len(ranked.values) + ranked.notes.comments, rejects, path)


def given_run(path: str) -> int:
    """A run that a job reads; some files are also read in small units, which hold as many rows."""
    given = DigestedRun("", (RunUnit(DigestedFile(path, "", ""), "", os.path.getsize(path)),))
    reader, counts = RunReader.of(given, NO_HINTS), []
    small_bytes = max(64, os.path.getsize(path) // 100)
    for unit_bytes in (_UNIT_BYTES, small_bytes) if _is_drawn(path) else (_UNIT_BYTES,):
        rejects = Rejects(reader.kind, NO_LIMIT)
        rows = sum(
            len(batch.rows)
            for unit in reader.units(given, unit_bytes)
            for batch in reader.read(unit, rejects)
        )
        counts.append(rows + rejects.count)
    assert counts[0] == counts[-1], "small units have other rows"
    return counts[0]


def linted_run(path: str) -> int:
    """What `lint` finds."""
    return len(lint_run(path).findings.examples)


def excluded(path: str) -> int:
    """Docs to exclude."""
    docs = read_excluded(path)
    return docs.repeated + sum(map(len, (docs.pairs or {}).values()))


def pairs(path: str) -> int:
    """Pairs to score."""
    (file,) = find_pairs([path])
    rows = RowRange(digest_file(path, read=False), 0, file.rows)
    rows_read = read_pairs(rows, file.kind, file.id_type, {}, described(file.passed))
    assert (
        len(rows_read.usable) == len(rows_read.ids) == len(rows_read.bad) + len(rows_read.texts[0])
    )
    return len(rows_read.usable)


def stream(path: str) -> int:
    """A compressed file."""
    with open_stream(path) as file:
        return sum(map(len, iter(lambda: file.read(1 << 20), b"")))


def configuration(path: str) -> int:
    """A configuration."""
    return len(load_config(path).measures)


def overrides(path: str) -> int:
    """Values of `--set`, with NUL between them."""
    text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
    return len(
        load_config(str(ROOT / "examples/own_corpus/config.yaml"), text.split("\0")).measures
    )


def training(path: str) -> int:
    """A configuration of a training."""
    return len(load_train_config(path, "mono").output)


def checkpoint(path: str) -> int:
    """The checkpoint that a file is of."""
    return len(resolve_checkpoint(os.path.dirname(path), "mono").files)


def tokenizer(path: str) -> int:
    """The tokenizer that a file is of, which encodes two texts."""
    return len(load_tokenizer(os.path.dirname(path)).encode(["a b [CLS] é", ""], 16).ids)


def output(path: str) -> int:
    """Everything that reads the output that a file is in; `verify` finds damage of a table, and no
    other.
    """
    folder = next(
        str(parent) for parent in Path(path).parents if (parent / listing.CURRENT).exists()
    )
    with suppress(BeamrankError):
        find_garbage(folder, 1e12, 0.0)
    findings = verify_stages(folder).findings
    if path.endswith(".parquet"):
        assert bool(findings) != holds_content(path, Path(path).read_bytes()), (
            f"verify finds {findings}"
        )
    plan = read_plan(folder)
    list(shard_attempts(plan, 0))
    return len(read_status(plan))


def plan(path: str) -> int:
    """The plan of an output."""
    return len(read_status(read_plan(os.path.dirname(path))))


def part(path: str) -> int:
    """A part whose receipt is right, as somebody with write access can make it."""
    content = Path(path).read_bytes()
    receipt = Receipt(0, "x", os.path.basename(path), sha256(content), len(content), 1, 0, 1.0)
    return int(StageFolder(os.path.dirname(path)).read_part(receipt).num_rows)


def listed_topics(path: str) -> int:
    """A plan's list of topics under the name of its content."""
    content = Path(path).read_bytes()
    try:
        return len(read_shards(f"topics-{sha256(content)[:SHORT]}.parquet", content, 3))
    except ValueError as error:  # Of a plan that cannot be read.
        raise DataError(str(error)) from error


def stored_rows(path: str) -> int:
    """What the workers of a job read row by row."""
    open_rows.cache_clear()
    return len(read_rows(path))


def records(path: str) -> int:
    """TFRecord examples."""
    bad = Rejects("examples", NO_LIMIT)
    ranges = tfrecord.record_ranges(path, 2)
    contents = [
        content for records_of in ranges for _, content in tfrecord.read_records(records_of, bad)
    ]
    with suppress(tfrecord.ExampleError):
        if contents:
            tfrecord.decode(contents)
    assert len(contents) + bad.count == sum(records_of.count for records_of in ranges)
    return len(contents) + bad.count


def variables(path: str) -> int:
    """A checkpoint of TensorFlow, by its index."""
    bundle = TensorBundle(path.removesuffix(".index"))
    return len([bundle.read(name) for name in bundle.entries])


def collection(path: str) -> int:
    """WikiPassageQA, or nfL6."""
    is_folder = path.endswith("document_passages.json")
    collection_read = read_wikipassageqa(os.path.dirname(path)) if is_folder else read_nfl6(path)
    return len(list(collection_read.docs)) + sum(collection_read.left_out.values())


def graded(path: str) -> int:
    """WebAP."""
    return len(list(read_graded(path)))

"""Texts of a training: when two are the same, those of docs in a corpus, and their token ids on
disk.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import regex
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.texts.units import CorpusUnit, DocBatch, duplicate_doc
from beamrank.join import schemas
from beamrank.notes import first_few
from beamrank.storage.documents import hash64, hashes64
from models.tokenizers.bert import BertTokenizer

Hashes: TypeAlias = NDArray[np.uint64]
Indices: TypeAlias = NDArray[np.int64]

EMPTY = np.uint64(hash64(""))
"""The hash of a text without a visible character."""
MISSING = -1
_FILE, _COLUMN = "texts.arrow", "token_ids"
_BATCH_TEXTS = 4096
# Controls, marks and fillers that no one sees, a blank pattern, and what stands for an unreadable
# character.
_INVISIBLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}\u2800\ufffd]|(?!\s)\p{Cc}")


def normal_text(text: str) -> str:
    """A text, apart from letter case, white space, invisible characters and Unicode's forms of a
    character.

    Two texts with the same result are copies; a text without any is empty.
    """
    visible = _INVISIBLE.sub("", text)
    if not visible.isascii():
        visible = normalize("NFKC", normalize("NFKC", visible).casefold())
    return " ".join(visible.casefold().split())


def is_in(values: NDArray[Any], among: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is among others, which are sorted."""
    if not len(among):
        return np.zeros(values.shape, np.bool_)
    return np.asarray(among[np.minimum(np.searchsorted(among, values), len(among) - 1)] == values)


class TextWriter:
    """Writes the token ids of texts to a folder, and hashes each text, so that copies and empty
    texts are found.
    """

    def __init__(self, folder: Path, tokenizer: BertTokenizer, max_tokens: int) -> None:
        from datasets import Features, List, Value
        from datasets.arrow_writer import ArrowWriter

        ids = List(Value(str(schemas.token_type(tokenizer.vocab_size))))
        self._writer = ArrowWriter(path=str(folder / _FILE), features=Features({_COLUMN: ids}))
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._hashes = [np.zeros(0, np.uint64)]
        self.rows = 0

    def add(self, texts: Sequence[str]) -> None:
        """Appends texts."""
        for start in range(0, len(texts), _BATCH_TEXTS):
            ids = self._tokenizer.encode(texts[start : start + _BATCH_TEXTS], self._max_tokens).ids
            self._writer.write_table(pa.table({_COLUMN: ids}))
        self._hashes.append(hashes64(map(normal_text, texts)))
        self.rows += len(texts)

    def hashes(self) -> Hashes:
        """uint64[texts], of the texts since the last call."""
        found, self._hashes = np.concatenate(self._hashes), [np.zeros(0, np.uint64)]
        return found

    def close(self) -> None:
        """Completes the file."""
        self._writer.finalize()


class TokenTable:
    """The token ids that a `TextWriter` wrote, in a file that is mapped into memory."""

    def __init__(self, folder: Path) -> None:
        from datasets import Dataset

        try:
            found = Dataset.from_file(str(folder / _FILE))
        # Some mounts, such as those by FUSE, map no files.
        except OSError:
            found = Dataset.from_file(str(folder / _FILE), in_memory=True)
        self._rows = found.with_format("arrow")

    def lengths(self) -> NDArray[np.int32]:
        """int32[texts], the tokens of each text."""
        chunks = self._rows.data.column(_COLUMN).chunks
        return np.concatenate(
            [np.zeros(0, np.int32), *(chunk.value_lengths().to_numpy() for chunk in chunks)]
        )

    def __getitem__(self, rows: Sequence[int]) -> pa.ListArray:
        """The token ids of some texts."""
        return self._rows[rows].column(_COLUMN).combine_chunks()


def read_texts(
    corpus: CorpusConfig, doc_ids: Collection[str], max_bad_rows: int
) -> tuple[dict[str, str], list[str]]:
    """The texts of a few docs by doc_id, and lines to report about the corpus. Errors as of
    `scan_docs`.
    """
    texts: list[str] = []
    distinct = sorted(set(doc_ids))
    hashes = hashes64(distinct)
    order = np.argsort(hashes)
    rows, lines = scan_docs(corpus, hashes[order], max_bad_rows, texts.extend, lambda: distinct)
    return {
        distinct[at]: texts[row] for at, row in zip(order.tolist(), rows.tolist(), strict=True)
    }, lines


def scan_docs(
    corpus: CorpusConfig,
    doc_hashes: Hashes,
    max_bad_rows: int,
    keep: Callable[[list[str]], None],
    names: Callable[[], Sequence[str]] | None,
) -> tuple[Indices, list[str]]:
    """Reads a corpus, and passes the texts of some docs on, in the order of the corpus.

    Args:
        corpus: the docs.
        doc_hashes: uint64[n], the hashes of the doc_ids, sorted and distinct.
        max_bad_rows: more invalid rows are an error.
        keep: receives texts.
        names: the doc_ids, for an error; None if docs may be missing.

    Returns:
        int64[n], how many texts were passed on before that of each doc, or MISSING; lines to report
        about the corpus.
    """
    rows, count, lines = np.full(len(doc_hashes), MISSING, np.int64), 0, list[str]()
    for unit, batch in _read_docs(corpus, max_bad_rows, lines):
        hashes = hashes64(batch.doc_ids)
        found = np.flatnonzero(is_in(hashes, doc_hashes)).tolist()
        entries = np.searchsorted(doc_hashes, hashes[found]).tolist()
        for row, (at, entry) in enumerate(zip(found, entries, strict=True), count):
            if rows[entry] != MISSING:
                doc_id, place = batch.doc_ids[at], unit.place(batch.positions[at])
                raise PreflightError(duplicate_doc(doc_id, _first_place(corpus, doc_id), place))
            rows[entry] = row
        keep([batch.texts[at] for at in found])
        count += len(found)
    absent = doc_hashes[rows == MISSING]
    if len(absent) and names is not None:
        named = names()
        missing = sorted(
            {named[at] for at in np.flatnonzero(is_in(hashes64(named), absent)).tolist()}
        )
        raise PreflightError(
            f"{len(absent):,} of the {len(doc_hashes):,} docs that run and qrels name are not in "
            f"the corpus {corpus.path}: {first_few(missing)}. Give the corpus that they were made "
            "for"
        )
    return rows, lines


def scan_passages(corpus: CorpusConfig, max_bad_rows: int, writer: TextWriter) -> list[str]:
    """Writes all texts of a corpus that are not empty; returns lines to report about it."""
    lines, empty = list[str](), 0
    for _, batch in _read_docs(corpus, max_bad_rows, lines):
        texts = [text for text in batch.texts if normal_text(text)]
        writer.add(texts)
        empty += len(batch.texts) - len(texts)
    if not writer.rows:
        raise PreflightError(
            f"the corpus {corpus.path} has no usable passage: all are empty or invalid"
        )
    return [*lines, *([f"empty passages of the corpus: {empty:,}; ignored"] if empty else [])]


def _read_docs(
    corpus: CorpusConfig, max_bad_rows: int, lines: list[str]
) -> Iterator[tuple[CorpusUnit, DocBatch]]:
    """All docs; after the last one adds a line about invalid rows, or raises PreflightError if
    there are too many.
    """
    bad, first = 0, ""
    for unit in list_units(corpus):
        for batch in read_unit(unit):
            bad += len(batch.bad)
            first = first or "".join(f"{row.place}: {row.reason}" for row in batch.bad[:1])
            yield unit, batch
    if bad > max_bad_rows:
        raise PreflightError(
            f"{bad:,} rows of the corpus {corpus.path} are invalid, and data.max_bad_rows is "
            f"{max_bad_rows}; the first: {first}"
        )
    if bad:
        lines.append(f"invalid rows of the corpus: {bad:,}; the first: {first}")


def _first_place(corpus: CorpusConfig, doc_id: str) -> str:
    """Where a doc stands first, for an error."""
    batches = (
        (unit, batch)
        for unit in list_units(corpus)
        for batch in read_unit(unit)
        if doc_id in batch.doc_ids
    )
    unit, batch = next(batches)
    return unit.place(batch.positions[batch.doc_ids.index(doc_id)])

"""Texts of a training: when two are the same, those of docs in a corpus, and their token ids on disk."""

import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.notes import first_few
from beamrank.formats.texts.units import DocBatch, duplicate_doc
from beamrank.join import schemas
from beamrank.storage.documents import hash64, hashes64
from models.tokenizers.bert import BertTokenizer

Hashes: TypeAlias = NDArray[np.uint64]
Indices: TypeAlias = NDArray[np.int64]

EMPTY = np.uint64(hash64(""))
"""The hash of a text without a visible character."""
MISSING = -1
_FILE, _COLUMN = "texts.arrow", "token_ids"
_BATCH_TEXTS = 4096
# A place is a number of a unit and a position in it.
_POSITION_BITS = 40
# Not of the categories of invisible characters: a joiner, fillers, selectors, a blank pattern, and what stands for an
# unreadable character; most give no token.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffd")
_SELECTORS = range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)


class _Visible(dict[int, int | None]):
    """For `str.translate`: removes characters that no one sees, except white space."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        hidden = unicodedata.category(character) in ("Cc", "Cf") and not character.isspace()
        hidden |= character in _INVISIBLE or any(code in selectors for selectors in _SELECTORS)
        self[code] = None if hidden else code
        return self[code]


_VISIBLE = _Visible()


def normal_text(text: str) -> str:
    """A text, apart from letter case, white space, invisible characters and Unicode's forms of a character.

    Two texts with the same result are copies; a text without any is empty.
    """
    visible = text.translate(_VISIBLE)
    if not visible.isascii():
        visible = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return " ".join(visible.casefold().split())


def is_in(values: NDArray[Any], among: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is among others, which are sorted."""
    if not len(among):
        return np.zeros(values.shape, np.bool_)
    return np.asarray(among[np.minimum(np.searchsorted(among, values), len(among) - 1)] == values)


class TextWriter:
    """Writes the token ids of texts to a folder, and hashes each text, so that copies and empty texts are found."""

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
        return np.concatenate([np.zeros(0, np.int32), *(chunk.value_lengths().to_numpy() for chunk in chunks)])

    def __getitem__(self, rows: Sequence[int]) -> pa.ListArray:
        """The token ids of some texts."""
        return self._rows[rows].column(_COLUMN).combine_chunks()


def read_texts(corpus: CorpusConfig, doc_ids: Collection[str], max_bad_rows: int) -> tuple[dict[str, str], list[str]]:
    """The texts of a few docs by doc_id, and lines to report about the corpus. Errors as of `scan_docs`."""
    texts: list[str] = []
    distinct = sorted(set(doc_ids))
    hashes = hashes64(distinct)
    order = np.argsort(hashes)
    rows, lines = scan_docs(corpus, hashes[order], max_bad_rows, texts.extend, lambda: distinct)
    return {distinct[at]: texts[row] for at, row in zip(order.tolist(), rows.tolist(), strict=True)}, lines


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
        int64[n], how many texts were passed on before that of each doc, or MISSING; lines to report about the corpus.

    Raises:
        PreflightError: the corpus cannot be read, lacks a doc, has a doc twice, or has too many invalid rows.
    """
    scan = _Scan(corpus, max_bad_rows)
    rows, places = np.full(len(doc_hashes), MISSING, np.int64), np.zeros(len(doc_hashes), np.int64)
    count = 0
    for batch in scan.batches():
        hashes = hashes64(batch.doc_ids)
        found = np.flatnonzero(is_in(hashes, doc_hashes)).tolist()
        entries = np.searchsorted(doc_hashes, hashes[found]).tolist()
        for row, (number, entry) in enumerate(zip(found, entries, strict=True), count):
            here = batch.unit << _POSITION_BITS | batch.positions[number]
            if rows[entry] != MISSING:
                before = scan.shown(int(places[entry]))
                raise PreflightError(duplicate_doc(batch.doc_ids[number], before, scan.shown(here)))
            rows[entry], places[entry] = row, here
        keep([batch.texts[number] for number in found])
        count += len(found)
    absent = doc_hashes[rows == MISSING]
    if len(absent) and names is not None:
        named = names()
        missing = sorted({named[at] for at in np.flatnonzero(is_in(hashes64(named), absent)).tolist()})
        raise PreflightError(
            f"{len(absent):,} of the {len(doc_hashes):,} docs that run and qrels name are not in the corpus "
            f"{corpus.path}: {first_few(missing)}. Give the corpus that they were made for"
        )
    return rows, scan.lines()


def scan_passages(corpus: CorpusConfig, max_bad_rows: int, writer: TextWriter) -> list[str]:
    """Writes all texts of a corpus that are not empty; returns lines to report about it.

    Raises:
        PreflightError: the corpus cannot be read, or has no such text or too many invalid rows.
    """
    scan, empty = _Scan(corpus, max_bad_rows), 0
    for batch in scan.batches():
        texts = [text for text in batch.texts if normal_text(text)]
        writer.add(texts)
        empty += len(batch.texts) - len(texts)
    writer.close()
    if not writer.rows:
        raise PreflightError(f"the corpus {corpus.path} has no usable passage: all are empty or invalid")
    return [*scan.lines(), *([f"empty passages of the corpus: {empty:,}; ignored"] if empty else [])]


class _Scan:
    """One pass over a corpus, which counts its invalid rows."""

    def __init__(self, corpus: CorpusConfig, max_bad_rows: int) -> None:
        self._path, self._units, self._max_bad_rows = corpus.path, list_units(corpus), max_bad_rows
        self._bad, self._first = 0, ""

    def batches(self) -> Iterator[DocBatch]:
        """Yields all docs; PreflightError after the last one if there are too many invalid rows."""
        for unit in self._units:
            for batch in read_unit(unit):
                self._bad += len(batch.bad)
                self._first = self._first or "".join(f"{row.place}: {row.reason}" for row in batch.bad[:1])
                yield batch
        if self._bad > self._max_bad_rows:
            raise PreflightError(
                f"{self._bad:,} rows of the corpus {self._path} are invalid, and data.max_bad_rows is "
                f"{self._max_bad_rows}; the first: {self._first}"
            )

    def shown(self, place: int) -> str:
        """A place for a message."""
        return self._units[place >> _POSITION_BITS].place(place & (1 << _POSITION_BITS) - 1)

    def lines(self) -> list[str]:
        """A line about invalid rows."""
        return [f"invalid rows of the corpus: {self._bad:,}; the first: {self._first}"] if self._bad else []

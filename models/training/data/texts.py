"""Texts of a training: when two are the same, reading them from a corpus, and their token ids on
disk.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import regex
from numpy.typing import NDArray

from beamrank.commit import schemas
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.texts.units import DocBatch, duplicate_doc
from beamrank.notes import first_few
from beamrank.storage.documents import hash64, hashes64
from models.tokenizers.bert import BertTokenizer

Hashes: TypeAlias = NDArray[np.uint64]
Indices: TypeAlias = NDArray[np.int64]

EMPTY = np.uint64(hash64(""))
"""Both hashes of a text without a visible character, or without a token."""
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


def places_in(values: NDArray[Any], among: NDArray[Any]) -> Indices:
    """The place of each value among others, or MISSING."""
    order = np.argsort(among)
    places = np.full(values.shape, MISSING)
    is_known = is_in(values, among[order])
    places[is_known] = order[np.searchsorted(among[order], values[is_known])]
    return places


def keys_of(texts: Sequence[str], ids: pa.ListArray) -> Hashes:
    """uint64[texts, 2]: the hashes of each text's normal form and of its token ids."""
    tokens = memoryview(ids.values.to_numpy())
    parts = (tokens[start:end] for start, end in pairwise(ids.offsets.to_numpy()))
    keys = np.stack([hashes64(map(normal_text, texts)), hashes64(parts)], axis=1)
    keys[(keys == EMPTY).any(axis=1)] = EMPTY
    return keys


def distinct(keys: Hashes) -> Hashes:
    """uint64[texts]: the same for texts that have a normal form or token ids in common, or share
    them with others.
    """
    groups = [np.unique(column, return_inverse=True)[1] for column in keys.T]
    texts, before = keys[:, 0], None
    while before is None or (texts != before).any():
        before = texts
        for group in groups:
            least = np.full(len(keys), np.iinfo(np.uint64).max)
            np.minimum.at(least, group, texts)
            texts = least[group]
    return texts


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
        self._keys = [np.zeros((0, 2), np.uint64)]
        self.rows = 0

    def add(self, texts: Sequence[str], *, empty: bool = True) -> None:
        """Appends texts, also empty ones or only others."""
        for start in range(0, len(texts), _BATCH_TEXTS):
            batch = texts[start : start + _BATCH_TEXTS]
            ids = self._tokenizer.encode(batch, self._max_tokens).ids
            keys = keys_of(batch, ids)
            if not empty:
                kept = keys[:, 0] != EMPTY
                ids, keys = ids.filter(pa.array(kept)), keys[kept]
            self._writer.write_table(pa.table({_COLUMN: ids}))
            self._keys.append(keys)
            self.rows += len(keys)

    def keys(self) -> Hashes:
        """`keys_of` the texts since the last call."""
        keys, self._keys = np.concatenate(self._keys), [np.zeros((0, 2), np.uint64)]
        return keys

    def close(self) -> None:
        """Completes the file."""
        self._writer.finalize()


class TokenTable:
    """The token ids that a `TextWriter` wrote, in a file that is mapped into memory."""

    def __init__(self, folder: Path) -> None:
        from datasets import Dataset

        try:
            rows = Dataset.from_file(str(folder / _FILE))
        # Some mounts, such as those by FUSE, map no files.
        except OSError:
            rows = Dataset.from_file(str(folder / _FILE), in_memory=True)
        self._rows = rows.with_format("arrow")

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
        int64[n], how many texts were passed on before each doc's, or MISSING; lines to report about
        the corpus.
    """
    rows, count, lines = np.full(len(doc_hashes), MISSING, np.int64), 0, list[str]()
    for batch in _read_docs(corpus, max_bad_rows, lines):
        hashes = hashes64(batch.doc_ids)
        wanted = np.flatnonzero(is_in(hashes, doc_hashes)).tolist()
        entries = np.searchsorted(doc_hashes, hashes[wanted]).tolist()
        for row, (at, entry) in enumerate(zip(wanted, entries, strict=True), count):
            if rows[entry] != MISSING:
                doc_id = batch.doc_ids[at]
                raise PreflightError(duplicate_doc(doc_id, *islice(_places(corpus, doc_id), 2)))
            rows[entry] = row
        keep([batch.texts[at] for at in wanted])
        count += len(wanted)
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
    lines, docs = list[str](), 0
    for batch in _read_docs(corpus, max_bad_rows, lines):
        writer.add(batch.texts, empty=False)
        docs += len(batch.texts)
    empty = docs - writer.rows
    if not writer.rows:
        raise PreflightError(
            f"the corpus {corpus.path} has no usable passage: all are empty or invalid"
        )
    return [*lines, *([f"empty passages of the corpus: {empty:,}; ignored"] if empty else [])]


def _read_docs(corpus: CorpusConfig, max_bad_rows: int, lines: list[str]) -> Iterator[DocBatch]:
    """All docs; after the last one adds a line about invalid rows, or raises PreflightError if
    there are too many.
    """
    rejects = Rejects("docs", NO_LIMIT)
    for unit in list_units(corpus):
        yield from read_unit(unit, rejects)
    if rejects.count > max_bad_rows:
        raise PreflightError(
            f"{rejects.count:,} rows of the corpus {corpus.path} are invalid, and "
            f"data.max_bad_rows is {max_bad_rows}; the first: {rejects.examples[0]}"
        )
    lines.extend(map(str, rejects.notes()))


def _places(corpus: CorpusConfig, doc_id: str) -> Iterator[str]:
    """The places of a doc, for an error."""
    for unit in list_units(corpus):
        for batch in read_unit(unit):
            places = zip(batch.doc_ids, batch.positions, strict=True)
            yield from (unit.place(place) for one, place in places if one == doc_id)

"""Token ids of texts on disk: written once, then read by row from a file that is mapped into memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beamrank.join import schemas
from beamrank.storage.documents import hash64, hashes64
from beamrank.storage.local_files import map_array, map_numbers
from models.tokenizers.bert import BertTokenizer
from models.training.data.examples import TokenIds
from models.training.data.texts import normal_text

QUERIES, DOCS = "queries", "docs"
EMPTY = np.uint64(hash64(""))
"""The hash of a text without a visible character."""
_BATCH_TEXTS = 4096


def token_dtype(tokenizer: BertTokenizer) -> np.dtype[np.unsignedinteger]:
    """The type of a token id."""
    found: np.dtype[np.unsignedinteger] = np.dtype(schemas.token_type(tokenizer.vocab_size).to_pandas_dtype())
    return found


class TokenWriter:
    """Writes NAME.bin, the ids of all texts, and NAME.npy, where each text ends."""

    def __init__(self, folder: Path, name: str, tokenizer: BertTokenizer, max_tokens: int) -> None:
        self._path = folder / name
        self._path.with_suffix(".bin").write_bytes(b"")
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._lengths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]

    def add(self, texts: Sequence[str]) -> None:
        """Appends texts."""
        for start in range(0, len(texts), _BATCH_TEXTS):
            ids = self._tokenizer.encode(texts[start : start + _BATCH_TEXTS], self._max_tokens).ids
            offsets = ids.offsets.to_numpy()
            with open(self._path.with_suffix(".bin"), "ab") as file:
                file.write(ids.values.to_numpy()[offsets[0] : offsets[-1]].tobytes())
            self._lengths.append(np.diff(offsets))

    def close(self) -> None:
        """Writes where the texts end."""
        np.save(self._path.with_suffix(".npy"), np.cumsum(np.concatenate(self._lengths), dtype=np.int64))


class HashedTexts:
    """Writes token ids, and keeps a hash of each text, by which copies and empty texts are found."""

    def __init__(self, writer: TokenWriter) -> None:
        self._writer = writer
        self._hashes = [np.zeros(0, np.uint64)]

    def add(self, texts: Sequence[str]) -> None:
        """Appends texts."""
        self._writer.add(texts)
        self._hashes.append(hashes64(map(normal_text, texts)))

    def close(self) -> NDArray[np.uint64]:
        """uint64[texts], after the last."""
        self._writer.close()
        return np.concatenate(self._hashes)


class TokenRows:
    """The texts of a `TokenWriter` as the bytes of their token ids."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[np.unsignedinteger]) -> None:
        path = (folder / name).with_suffix(".bin")
        self._ids = map_numbers(path, dtype)
        self._ends = map_array((folder / name).with_suffix(".npy"))

    def __getitem__(self, row: int) -> TokenIds:
        start = int(self._ends[row - 1]) if row else 0
        return self._ids[start : int(self._ends[row])].tobytes()

"""Answers that cost money, such as a server's: the output keeps each before it is used, so that a
process that dies after it pays no second time.

Readers of parts never read them: a part holds the answers that it used.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from beamrank.commit.listing import ASKED, asked_name
from beamrank.commit.receipts import publish_once
from beamrank.storage import files as storage
from beamrank.storage.documents import Document, Seconds
from beamrank.system import system

Answer: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Answer], bool]
_KEY_DIGITS = 20


@dataclass(frozen=True)
class KeptAnswer(Document):
    """An answer, and the digest of the shard that asked."""

    shard_digest: str
    answer: Answer
    kept_seconds: Seconds


@dataclass(frozen=True)
class KeptAnswers:
    """The answers that a stage keeps in an output.

    Attributes:
        output: the folder.
        score_digest: the digest of what decides an answer beside its key: `Stage.score_keys`.
        shard_digest: the digest of the shard that asks.
    """

    output: str
    score_digest: str
    shard_digest: str

    def find(self, key: bytes, is_valid: Check) -> tuple[str, Answer | None]:
        """The file of an answer, and the answer if it is there.

        An answer that is not valid counts for the shard that got it: every other shard, also of a
        later plan, asks for one of its own.
        """
        url = self._url(key)
        kept = read_answer(url)
        is_own = kept is not None and kept.shard_digest == self.shard_digest
        if kept is not None and not is_own and not is_valid(kept.answer):
            url = self._url(key + bytes.fromhex(self.shard_digest))
            kept = read_answer(url)
        return url, None if kept is None else kept.answer

    def keep(self, url: str, answer: Answer) -> tuple[Answer, bool]:
        """Publishes an answer: returns the one that is there, and whether it is this one."""
        ours = KeptAnswer(self.shard_digest, answer, system.time())
        kept = publish_once(url, ours, partial(read_answer, url))
        return kept.answer, kept is ours

    def _url(self, key: bytes) -> str:
        digits = hashlib.sha256(key).hexdigest()[:_KEY_DIGITS]
        return storage.join(self.output, ASKED, asked_name(self.score_digest, digits))


def read_answer(url: str) -> KeptAnswer | None:
    """A kept answer; None if there is none, or the file is damaged."""
    try:
        return KeptAnswer.from_json(storage.read_bytes(url))
    except FileNotFoundError:
        return None

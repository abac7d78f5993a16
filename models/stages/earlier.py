"""The parts of earlier runs that hold scores of a shard's queries, as a worker reads them."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.receipts import arithmetic_digest
from beamrank.commit.shards import EarlierPart
from beamrank.errors import BeamrankError, DataError
from beamrank.machine import describe_machine
from models.scoring.known import KnownScores

_log = logging.getLogger(__name__)

# From the tokens and the scores of some queries, and the keys of the stage that scored them.
FindKnown = Callable[[pa.Table, pa.Table, Mapping[str, Any]], KnownScores]


class EarlierScores:
    """Reads the parts one after the other, each when it is asked for.

    A part that cannot be used is left out, and counted in `unused`: its scores are computed again.
    """

    def __init__(
        self, parts: Sequence[EarlierPart], tokens: pa.Table, find: FindKnown, of_any_machine: bool = False
    ) -> None:
        """`tokens` is the shard's table, which decides whose scores are wanted."""
        self._parts, self._tokens, self._find, self._of_any_machine = parts, tokens, find, of_any_machine
        self.unused: dict[str, int] = {}

    def __iter__(self) -> Iterator[KnownScores]:
        for part in self._parts:
            here = arithmetic_digest(describe_machine(), part.keys["backend"])
            if part.arithmetic != here and not self._of_any_machine:
                self._leave_out("parts_of_other_machines", part, "another kind of machine computed it")
                continue
            try:
                yield self._read(part)
            except (BeamrankError, OSError) as error:
                self._leave_out("unusable_parts", part, str(error))

    def _read(self, part: EarlierPart) -> KnownScores:
        tokens, scores = part.tokens.read(), part.scores.read()
        if not tokens.schema.equals(self._tokens.schema, check_metadata=True):
            raise DataError("another tokenizer made its tokens")
        query_ids = self._tokens["query_id"].combine_chunks()
        some = [each.filter(pc.is_in(each["query_id"], query_ids)) for each in (tokens, scores)]
        return self._find(some[0], some[1], part.keys)

    def _leave_out(self, count: str, part: EarlierPart, reason: str) -> None:
        _log.warning("%s is not taken over: %s", part.scores.folder.part_url(part.scores.receipt), reason)
        self.unused[count] = self.unused.get(count, 0) + 1

"""A shard's task: all that a worker needs beside the stage to do the shard and commit it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.records import Topic
from beamrank.storage.digested import RowRange


class InputPart(NamedTuple):
    """The part of an earlier stage that a shard reads."""

    folder: StageFolder
    receipt: Receipt

    def read(self) -> Any:
        """The table."""
        return self.folder.read_part(self.receipt)


class EarlierPart(NamedTuple):
    """The part of an earlier run whose scores a shard may take over.

    Attributes:
        scores: the part.
        tokens: the part with the tokens that were scored.
        keys: of the stage that scored them.
        arithmetic: names what computed them: see `beamrank.commit.machines.arithmetic_digest`.
    """

    scores: InputPart
    tokens: InputPart
    keys: Mapping[str, Any]
    arithmetic: str


@dataclass(frozen=True)
class ShardTask:
    """One shard of one stage.

    Attributes:
        folder: the stage's.
        shard: the number of the shard.
        digest: the digest that the shard's receipt must have.
        topics: the shard's, sorted by query_id; empty for a stage that does not read them.
        inputs: the parts of the stages that it reads, in their order.
        rows: the shard's, for a stage that reads rows of a file.
        earlier: the parts of earlier runs that hold scores of the shard's queries, in the order in which they are read.
        tokens: the parts of an earlier run that hold tokens of docs that are not read from the corpus.
    """

    folder: StageFolder
    shard: int
    digest: str
    topics: tuple[Topic, ...] = ()
    inputs: tuple[InputPart, ...] = ()
    rows: RowRange | None = None
    earlier: tuple[EarlierPart, ...] = ()
    tokens: tuple[InputPart, ...] = ()

    def receipt(self) -> Receipt | None:
        """The receipt, if the shard has one that counts."""
        return self.folder.receipt(self.shard, self.digest)

    def commit(
        self,
        table: Any,
        *,
        seconds: float,
        counts: Mapping[str, int],
        bad_rows: int = 0,
        examples: Iterable[str] = (),
    ) -> Receipt:
        """Publishes the shard's part and receipt: `StageFolder.commit`."""
        return self.folder.commit(
            self.shard, self.digest, table, seconds=seconds, counts=counts, bad_rows=bad_rows, examples=examples
        )

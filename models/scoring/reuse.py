"""Reuse: parts of earlier runs answer inputs with the same token ids."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.receipts import arithmetic_digest
from beamrank.commit.shards import ReusablePart
from beamrank.errors import BeamrankError, DataError
from beamrank.machine import describe_machine
from beamrank.ranking.input_layout import Lengths, PackedInputs
from models.scoring.engine import Scores
from models.scoring.packing import number_texts

_log = logging.getLogger(__name__)


class ReusableScores(NamedTuple):
    """Inputs that were scored with the same checkpoint and special tokens, and their float32[n]
    log-odds.
    """

    inputs: PackedInputs
    log_odds: npt.NDArray[np.float32]


# From the tokens and the scores of some queries, and the keys of the stage that scored them.
FindReusable = Callable[[pa.Table, pa.Table, Mapping[str, Any]], ReusableScores]


@dataclass(frozen=True)
class Reused:
    """The n inputs of a shard, and the log-odds that earlier parts have for them: for all but the
    `missing` places.
    """

    inputs: PackedInputs
    log_odds: npt.NDArray[np.float32]
    missing: Lengths

    @property
    def rest(self) -> PackedInputs:
        """The inputs that must be scored."""
        return self.inputs.take(self.missing)

    def complete(self, scores: Scores | None = None) -> Scores:
        """The scores of all inputs, given those of `rest`; without them, those are 0, and counted
        as inferences.
        """
        count = len(self.missing)
        rest = Scores(np.zeros(count, np.float32), count, 0, 0, 0) if scores is None else scores
        log_odds = self.log_odds.copy()
        log_odds[self.missing] = rest.log_odds
        return replace(rest, log_odds=log_odds, reused=len(self.inputs) - count)


def find_reused(inputs: PackedInputs, reusable: Iterable[ReusableScores]) -> Reused:
    """Looks inputs up in earlier parts, and reads the next of these only while an input is
    missing.
    """
    log_odds = np.empty(len(inputs), np.float32)
    missing = np.arange(len(inputs))
    numbers: dict[bytes, int] = {}
    texts, parts = _numbered(inputs, numbers), iter(reusable)
    while len(missing) and (scored := next(parts, None)) is not None:
        places, theirs = _same_rows(texts[missing], _numbered(scored.inputs, numbers))
        log_odds[missing[places]] = scored.log_odds[theirs]
        missing = np.delete(missing, places)
    return Reused(inputs, log_odds, missing)


def _numbered(inputs: PackedInputs, numbers: dict[bytes, int]) -> Lengths:
    """int64[n, s] numbers of the texts of inputs, equal where their token ids are."""
    places = (inputs.starts << 32) | inputs.kept
    distinct, inverse = np.unique(places, return_inverse=True)
    return number_texts(inputs.tokens, distinct >> 32, distinct & 0xFFFFFFFF, numbers)[
        inverse
    ].reshape(places.shape)


def _same_rows(rows: Lengths, others: Lengths) -> tuple[Lengths, Lengths]:
    """The places of rows, all distinct, that are among others: int64[m] in `rows` and int64[m] in
    `others`.
    """
    both = np.concatenate([rows, others])
    codes = both[:, 0]
    for column in both.T[1:]:
        # Stays below the product of two counts that fit in memory.
        _, codes = np.unique(codes * (int(column.max()) + 1) + column, return_inverse=True)
    _, ours, theirs = np.intersect1d(codes[: len(rows)], codes[len(rows) :], return_indices=True)
    return ours, theirs


def read_reusable(
    parts: Sequence[ReusablePart],
    tokens: pa.Table,
    find: FindReusable,
    of_any_machine: bool,
    unused: Counter[str],
) -> Iterator[ReusableScores]:
    """The scores of earlier parts for the queries of a shard's table, each part read when it is
    needed.

    A part that cannot be used is left out, and counted in `unused`: its scores are computed again.
    """
    query_ids = tokens["query_id"].combine_chunks()
    for part in parts:
        here = arithmetic_digest(describe_machine(), part.keys["backend"])
        if part.arithmetic == here or of_any_machine:
            try:
                some = [each.read() for each in (part.tokens, part.scores)]
                if not some[0].schema.equals(tokens.schema, check_metadata=True):
                    raise DataError("a different tokenizer made its tokens")
                theirs, scores = (
                    each.filter(pc.is_in(each["query_id"], query_ids)) for each in some
                )
                found = find(theirs, scores, part.keys)
            except (BeamrankError, OSError) as error:
                count, reason = "unusable_parts", str(error)
            else:
                yield found
                continue
        else:
            count, reason = "parts_of_other_machines", "a different kind of machine computed it"
        _log.warning(
            "%s is not reused: %s", part.scores.folder.part_url(part.scores.receipt), reason
        )
        unused[count] += 1

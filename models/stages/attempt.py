"""A worker's attempt at a shard of a stage, which it logs; it skips a shard that another attempt
has committed.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beamrank import logs
from beamrank.commit import working
from beamrank.commit.asked import KeptAnswers
from beamrank.commit.listing import RECEIPTS, WORKING
from beamrank.commit.receipts import Receipt, arithmetic_digest
from beamrank.commit.shards import ShardTask
from beamrank.errors import BeamrankError, LeftOpenError
from beamrank.machine import describe_machine
from beamrank.storage import files as storage
from beamrank.storage.digested import reread
from beamrank.storage.documents import digest
from beamrank.storage.urls import hide_credentials
from models.scoring.answers import CONTENTS, Answers
from models.stages import calls
from models.stages.base import Stage
from models.stages.compute import ShardInputs
from models.stages.core import open_record
from models.stages.scatter import Scatter, SentRows
from models.stages.scoring import ModelLoad, new_loads

_log = logging.getLogger(__name__)
_SHARDS_AT_ONCE = 4
_in_progress: set[working.ShardProgress] = set()
_last_started = threading.Event()


def start_no_more() -> None:
    """From now on this process starts no shard: it is going to end. Those in progress continue."""
    _last_started.set()


def in_progress() -> bool:
    """Whether this process is doing a shard."""
    return bool(_in_progress)


def inputs_done() -> tuple[int, int]:
    """How many inputs of the shards that this process is doing are done, of how many."""
    shards = list(_in_progress)
    return sum(work.done for work in shards), sum(work.inputs for work in shards)


@contextmanager
def _progressing(task: ShardTask) -> Iterator[None]:
    """A shard in progress. After `start_no_more` it waits for the end of the process."""
    name = WORKING.name(task.digest, task.shard)
    work = working.ShardProgress(task.shard, storage.join(task.folder.url, RECEIPTS, name))
    token = working.current.set(work)
    # Before the look at the event, or the process might end at the start of a shard.
    _in_progress.add(work)
    try:
        if _last_started.is_set():
            _in_progress.discard(work)
            threading.Event().wait()
        yield
    finally:
        work.end()
        working.current.reset(token)
        _in_progress.discard(work)


class Outcome(NamedTuple):
    """A shard's receipt, None where it was left open; whether it was run for it, and the models
    that were loaded meanwhile.
    """

    receipt: Receipt | None
    ran: bool
    loads: Sequence[ModelLoad] = ()


def run_shard(stage: Stage, task: ShardTask) -> Outcome:
    """Computes a shard and commits it. Where a file that it reads was written meanwhile, it starts
    again (`reread`).
    """
    return attempt(task, partial(reread, partial(_compute_and_commit, stage, task)))


def attempt(task: ShardTask, commit: Callable[[], Receipt]) -> Outcome:
    """Commits a shard that no other attempt has committed."""
    with _progressing(task), logs.log_context(storage.name(task.folder.url), task.shard):
        receipt = task.receipt()
        if receipt is not None:
            _log.info("skipped: another attempt has committed this shard")
            return Outcome(receipt, ran=False)
        _log.info("started")
        try:
            receipt = commit()
        except LeftOpenError as error:
            _log.warning("left open: %s", error)
            task.folder.leave_open(task.shard, task.digest, hide_credentials(str(error)))
            return Outcome(None, ran=False)
        except Exception:
            _log.exception("failed")
            raise
        counts = ", ".join(f"{name} {count}" for name, count in receipt.counts.items())
        _log.info(
            "done in %.3f s: rows %d%s", receipt.seconds, receipt.rows, counts and f", {counts}"
        )
        return Outcome(receipt, ran=True, loads=new_loads())


def shard_inputs(stage: Stage, task: ShardTask) -> ShardInputs:
    """What a stage reads of a shard: each part at its first use."""
    parts = dict(zip(stage.inputs, task.inputs, strict=True))
    read = cache(lambda name: parts[name].read())
    inputs = ShardInputs(task.shard, read, task.topics, task.rows)
    if task.reusable:
        earlier = _earlier(stage, task, inputs)
        inputs.earlier = list(earlier) if stage.asks else earlier
    if stage.asks:
        output = storage.parent(task.folder.url)
        inputs.kept = KeptAnswers(output, digest(stage.score_keys), task.digest)
    return inputs


def _compute_and_commit(stage: Stage, task: ShardTask) -> Receipt:
    inputs = shard_inputs(stage, task)
    start = time.monotonic()
    computed = stage.compute(inputs)
    seconds = time.monotonic() - start - inputs.opening_seconds
    counts = {**computed.counts, **inputs.counts}
    return computed._replace(counts=counts).commit(task, seconds)


def _earlier(stage: Any, task: ShardTask, inputs: ShardInputs) -> Iterator[Answers]:
    """The answers of earlier parts for the queries of a shard.

    A part that cannot be used is left out and counted: its answers are computed again.
    """
    for part in task.reusable:
        backend = part.stage.keys.get("backend", "")
        here = arithmetic_digest(describe_machine(), backend)
        count, reason = "parts_of_other_machines", "a different kind of machine computed it"
        if part.arithmetic == here or stage.any_processor:
            query_ids = inputs.read(stage.tokens)["query_id"].combine_chunks()
            try:
                tables = part.scores.read(), part.tokens.read(CONTENTS)
                rows = (each.filter(pc.is_in(each["query_id"], query_ids)) for each in tables)
                answers = open_record(part.stage).known_answers(*rows)
            except (BeamrankError, OSError, LookupError) as error:
                count, reason = "unusable_parts", str(error)
            else:
                yield answers
                continue
        _log.warning("%s is not reused: %s", part.scores.url, reason)
        inputs.counts[count] += 1


def shards_here(stage: Stage, tasks: Sequence[ShardTask]) -> Iterator[int]:
    """Does the shards in this process, and yields the number of each that has a receipt."""
    calls.start()
    with ThreadPoolExecutor(stage.shards_at_a_time) as pool:
        for outcome in pool.map(partial(run_shard, stage), tasks):
            if outcome.receipt is not None:
                yield outcome.receipt.shard


def gather_shard(scatter: Scatter, task: ShardTask, rows: Sequence[pa.RecordBatch]) -> int:
    """The number of a shard once it has a receipt, also in the folders beside the stage's."""
    for folder, shard_digest in ((task.folder, task.digest), *task.beside):
        own = replace(task, folder=folder, digest=shard_digest)
        attempt(own, partial(scatter.gather, own, rows))
    return task.shard


def scatter_here(scatter: Scatter, tasks: Sequence[ShardTask]) -> Iterator[int]:
    """Does the shards in this process, and yields the number of each that has a receipt: all units
    are read before the first part is made.
    """
    sent: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for number in range(scatter.count):
        for shard, rows in reread(partial(_scanned, scatter, number)):
            sent[shard].append(rows)
    own_rows = [sent.pop(task.shard, []) for task in tasks]
    with ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
        yield from pool.map(partial(gather_shard, scatter), tasks, own_rows)


def _scanned(scatter: Scatter, number: int) -> list[SentRows]:
    return list(scatter.scan(number))


def done_here(work: Any, tasks: Sequence[ShardTask]) -> Iterator[int]:
    """Does shards in this process, by a scatter or by the stage itself: see `scatter_here`."""
    return (scatter_here if isinstance(work, Scatter) else shards_here)(work, tasks)

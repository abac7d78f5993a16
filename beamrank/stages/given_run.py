"""A run that the user already has, as the first stage."""

import time
from collections.abc import Sequence

import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats.ids import IdError, are_usable, check_doc_id
from beamrank.formats.runs import Run, Ties, read_run
from beamrank.records import Topic
from beamrank.stages.plan import Shard
from beamrank.stages.receipts import Receipt, StageFolder
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.tables.shard import candidates_table

_TIES: dict[Ties, str] = {
    "rank": "ordered by their ranks. `beamrank eval` and trec_eval order them by doc_id, descending, so their measures "
    "of this file can differ; `candidates.ties: doc_id` takes that order here too",
    "doc_id": "ordered by doc_id, descending, as `beamrank eval` and trec_eval do",
}


def candidates_digest(url: str) -> str:
    """The digest of the run's bytes.

    Raises:
        PreflightError: there is no such file, or it is being written.
    """
    try:
        return digest_file(url).content
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise PreflightError(f"there is no run {url}: give `candidates.run` a TREC or MS MARCO run") from error


def split_run(
    given: DigestedFile,
    k: int,
    shards: Sequence[Shard],
    digests: Sequence[str],
    folder: StageFolder,
    ties: Ties = "rank",
) -> list[str]:
    """Commits each shard's share of a given run, cut to its best `k` a query: by score, then as `ties` tells.

    Queries of the run that are not topics are left out; topics that the run does not have are counted.

    Args:
        given: the run.
        k: how many candidates of a query are kept.
        shards: the plan's.
        digests: what each shard's receipt must carry.
        folder: the stage's.
        ties: the order of a TREC run's tied scores.

    Returns:
        What is worth knowing about the run, a line each.

    Raises:
        PreflightError: the run cannot be read, has wrong lines (duplicates among them) or none of the topics.
        DataError: the file changed after its digest was taken.
    """
    with given.held():
        run = read_run(given.url, ties=ties)
    _check_topics(given.url, run, shards)
    for shard, digest in zip(shards, digests, strict=True):
        start = time.monotonic()
        commit_candidates(folder, shard.index, digest, shard.topics, _share(run, k, shard), start)
    return _notes(run, shards, ties)


def commit_candidates(
    folder: StageFolder, shard: int, digest: str, topics: Sequence[Topic], candidates: pa.Table, start: float
) -> Receipt:
    """Commits what the first stage found for a shard; topics that it found nothing for are counted and named.

    Args:
        folder: the stage's.
        shard: its number.
        digest: what its receipt must carry.
        topics: the shard's.
        candidates: `schemas.CANDIDATES`, sorted by query_id and rank.
        start: when the shard was begun, of `time.monotonic()`.

    Raises:
        DataError: a doc_id cannot be used, which an index that was built elsewhere may hold.
    """
    _check_doc_ids(candidates)
    found = set(candidates["query_id"].unique().to_pylist())
    without = [topic.query_id for topic in topics if topic.query_id not in found]
    counts = {
        "topics": len(topics),
        "topics_without_candidates": len(without),
        "candidates": candidates.num_rows,
    }
    return folder.commit(
        shard,
        digest,
        candidates,
        seconds=time.monotonic() - start,
        counts=counts,
        examples=[f"query {query_id!r} has no candidates" for query_id in without],
    )


def _check_doc_ids(candidates: pa.Table) -> None:
    doc_ids = candidates["doc_id"].to_pylist()
    if are_usable(doc_ids):
        return
    for query_id, doc_id in zip(candidates["query_id"].to_pylist(), doc_ids, strict=True):
        try:
            check_doc_id(doc_id)
        except IdError as error:
            raise DataError(
                f"a candidate of query {query_id!r} {error}. Build the index again from a corpus without it"
            ) from error


def _check_topics(url: str, run: Run, shards: Sequence[Shard]) -> None:
    if any(topic.query_id in run.order for shard in shards for topic in shard.topics):
        return
    raise PreflightError(
        f"the run {url} has none of the topics: its first query_id is {next(iter(run.order))!r}, the topics' "
        f"{shards[0].topics[0].query_id!r}. Give the run that was made for these topics"
    )


def _notes(run: Run, shards: Sequence[Shard], ties: Ties) -> list[str]:
    topics = {topic.query_id for shard in shards for topic in shard.topics}
    strangers = [query_id for query_id in run.order if query_id not in topics]
    notes = []
    if strangers:
        notes.append(f"queries that are no topics: {len(strangers):,} ({strangers[0]!r}, ...); they are left out")
    if run.notes.tied_scores:
        notes.append(f"rows with the score of the row before: {run.notes.tied_scores:,}; {_TIES[ties]}")
    if run.notes.rank_disagreements:
        notes.append(f"rows whose rank disagrees with the scores: {run.notes.rank_disagreements:,}; the scores decide")
    if run.notes.tied_ranks:
        notes.append(f"rows with the rank of the row before: {run.notes.tied_ranks:,}; ordered as they stand")
    return notes


def _share(run: Run, k: int, shard: Shard) -> pa.Table:
    """The candidates of one shard: `schemas.CANDIDATES`, sorted by query_id and rank."""
    query_ids = sorted(topic.query_id for topic in shard.topics if topic.query_id in run.order)
    return candidates_table(
        query_ids, [run.order[one][:k] for one in query_ids], [run.scores[one][:k] for one in query_ids]
    )

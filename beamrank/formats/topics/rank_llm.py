"""Topics and candidates of rank_llm's JSON; corpora/readers/rank_llm.py describes it."""

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.readers.rank_llm import doc_of, requests
from beamrank.formats.ids import IdError, check_query_id
from beamrank.formats.notes import Problems, counted
from beamrank.formats.row_checks import RowError
from beamrank.formats.runs import Run, Ties, run_of
from beamrank.records import Topic


def read_topics(url: str) -> list[Topic]:
    """The queries, in the order of the file.

    Raises:
        PreflightError: the file is not rank_llm's JSON, has no queries, or a query has no text or an id that is
            invalid or that an earlier one has.
    """
    topics: dict[str, Topic] = {}
    problems = Problems()
    try:
        for request in requests(url):
            reason = _reason(request.query_id, request.text, topics)
            if reason:
                problems.add(request.line, f"the topic {reason}")
            topics.setdefault(request.query_id, Topic(request.query_id, request.text))
    except DataError as error:
        raise PreflightError(str(error)) from error
    if problems.count:
        raise PreflightError(
            f"{counted(problems.count, 'query', 'queries')} of {url} cannot be read as topics"
            f"{problems.listed(f'{url}:')}"
        )
    if not topics:
        raise PreflightError(f"{url} holds no topics (read as `format: rank_llm`): there is nothing to rank")
    return list(topics.values())


def _reason(query_id: str, text: str, earlier: dict[str, Topic]) -> str:
    try:
        check_query_id(query_id)
    except IdError as error:
        return str(error)
    if not text.strip() or "\0" in text:
        return f"{query_id!r} has no text, or a NUL character in it"
    return f"{query_id!r} is in the file twice: remove one" if query_id in earlier else ""


def read_candidates(url: str, ties: Ties, max_bad_rows: int) -> Run:
    """The candidates in the order of their scores, or of the file where they have none.

    Raises:
        PreflightError: the file is not rank_llm's JSON, more than `max_bad_rows` candidates cannot be used, or a query
            has a doc twice.
    """
    scores: dict[str, dict[str, float]] = {}
    problems = Problems()
    try:
        for request in requests(url):
            docs = scores.setdefault(request.query_id, {})
            for rank, candidate in enumerate(request.candidates, 1):
                try:
                    doc_id, _ = doc_of(candidate)
                except RowError as error:
                    problems.add(request.line, f"query {request.query_id!r}: the row {error}")
                    continue
                if doc_id in docs:
                    raise PreflightError(f"{url}:{request.line}: query {request.query_id!r} has doc {doc_id!r} twice")
                score = candidate.get("score")
                docs[doc_id] = -rank if score is None else score
    except DataError as error:
        raise PreflightError(str(error)) from error
    if problems.count > max_bad_rows:
        raise PreflightError(
            f"{counted(problems.count, 'candidate')} of {url} cannot be used, and max_bad_rows is {max_bad_rows}"
            f"{problems.listed(f'{url}:')}"
        )
    try:
        return run_of(scores, ties=ties)
    except DataError as error:
        raise PreflightError(f"{url}: {error}") from error

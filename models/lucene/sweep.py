"""BM25's figures for several values of k1 and b, on topics that are judged."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from beamrank.config.first_stages import Bm25Config
from beamrank.config.yaml import explain
from beamrank.errors import ConfigError
from beamrank.evaluation.evaluate import evaluate
from beamrank.formats.excluded import Excluded, read_excluded
from beamrank.formats.qrels import Qrels
from beamrank.records import Topic
from models.lucene.bm25 import Bm25Searcher

_PARAMETERS = ("k1", "b")


class SweepRow(NamedTuple):
    """The mean of each measure at one k1 and b."""

    k1: float
    b: float
    means: Mapping[str, float]


def parse_sweep(given: Sequence[str], section: Bm25Config) -> list[Bm25Config]:
    """Every combination of the values of `k1=0.6,0.9` and `b=0.4,0.75`; one that is not given stays as it is.

    Raises:
        ConfigError: another parameter, one twice, or a value that is not a number, or is out of range.
    """
    values: dict[str, list[float]] = {}
    for each in given:
        name, _, numbers = each.partition("=")
        if name not in _PARAMETERS or name in values:
            raise ConfigError(f"--sweep {each!r}: give k1=VALUE,VALUE,... and b=VALUE,VALUE,..., each once")
        try:
            values[name] = [float(number) for number in numbers.split(",")]
            for value in values[name]:
                Bm25Config.model_validate({name: value})
        except ValidationError as error:
            raise ConfigError(f"--sweep {each!r}: {explain(error, Bm25Config)}") from error
        except ValueError as error:
            raise ConfigError(f"--sweep {each!r}: {error}") from error
    columns = [values.get(name) or [getattr(section, name)] for name in _PARAMETERS]
    return [section.model_copy(update={"k1": k1, "b": b}) for k1, b in itertools.product(*columns)]


def sweep(
    folder: str,
    topics: Sequence[Topic],
    qrels: Qrels,
    points: Sequence[Bm25Config],
    measures: Sequence[str],
    threads: int,
) -> Iterator[SweepRow]:
    """Searches an index at each point, and measures what it finds.

    Args:
        folder: a local Lucene index.
        topics: those of the qrels; others would not count.
        qrels: the judgments. A mean is over all their topics.
        points: k1, b and how many docs are retrieved.
        measures: their names.
        threads: how many threads Java searches with.
    """
    # The points differ in k1 and b alone.
    excluded = Excluded("nothing", {}) if points[0].exclude is None else read_excluded(points[0].exclude)
    for point in points:
        with Bm25Searcher(folder, point.k1, point.b, threads) as searcher:
            found = searcher.search(topics, excluded.depth((topic.query_id for topic in topics), point.k))
        order: dict[str, list[str]] = {}
        for query_id, doc_id in zip(found["query_id"].to_pylist(), found["doc_id"].to_pylist(), strict=True):
            order.setdefault(query_id, []).append(doc_id)
        rankings = (
            (query_id, [doc_ids[place] for place in excluded.kept(query_id, doc_ids)[: point.k]])
            for query_id, doc_ids in order.items()
        )
        yield SweepRow(point.k1, point.b, evaluate(rankings, qrels, measures).means)

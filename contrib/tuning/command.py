"""`beamrank tune CONFIG`: the measures of BM25 for several values of k1 and b, on topics that are
judged.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer
from pydantic import ValidationError

from beamrank.config.run import RunConfig
from beamrank.config.stages import Bm25Config
from beamrank.config.yaml import explain
from beamrank.errors import ConfigError
from beamrank.evaluation.evaluate import evaluate
from beamrank.evaluation.measures import parse_measures
from beamrank.evaluation.tables import MEAN, Column, Table
from beamrank.formats.checks import number
from beamrank.formats.corpora import digest_corpus
from beamrank.formats.excluded import Excluded, read_excluded
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.logs import run_log
from beamrank.ranking.rankings import rank_candidates
from beamrank.records import Topic
from beamrank.sources import is_named
from beamrank.storage.globs import absolute_glob
from models.lucene.bm25 import Bm25Searcher
from models.lucene.index import local_index
from models.stages.bm25 import ensure_index
from models.stages.first_stage import without
from models.stages.planning import threads_of
from pipelines.commands.arguments import (
    ConfigPath,
    Overrides,
    Quiet,
    ResultFormat,
    Verbose,
    console_progress,
    load_run_config,
)
from pipelines.console.tables import print_result
from pipelines.plan.make_plan import check_apart, chosen_topics
from pipelines.plan.named_inputs import named_inputs

HELP_PANEL = "Evaluate"

_Row = tuple[Bm25Config, Mapping[str, float]]


def tune(
    config: ConfigPath,
    k1: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE,VALUE", help="Such as 0.6,0.9,1.2; by default the configuration's."
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE,VALUE", help="Such as 0.4,0.75; by default the configuration's."
        ),
    ] = None,
    qrels: Annotated[
        str | None, typer.Option(help="The judgments of the topics; overrides `qrels`.")
    ] = None,
    overrides: Overrides = None,
    result_format: ResultFormat = "table",
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Search the index of a configuration for its judged topics with each combination of k1 and b:
    prints the measures.

    Builds the index if it does not exist. Choose on topics that you do not report.
    """
    judged = [] if qrels is None else [qrels if is_named(qrels) else absolute_glob(qrels)]
    settings = load_run_config(
        config, [*(overrides or ()), *(f"qrels={json.dumps(path)}" for path in judged)]
    )
    if settings.index is None:
        raise ConfigError(f"{config} has no `index:` section: its first stage is an existing run")
    section = settings.first_stage
    points = tuned_points(section if isinstance(section, Bm25Config) else Bm25Config(), k1, b)
    parse_measures(settings.measures)
    if settings.qrels is None:
        raise ConfigError(
            "tuning measures what BM25 finds: give --qrels, or `qrels` in the configuration"
        )
    console = console_progress(verbose, quiet)
    settings = named_inputs(settings, console)
    assert settings.index is not None
    assert settings.qrels is not None
    check_apart(settings)
    with run_log(console.events()):
        judgments = read_qrels(settings.qrels, rejects=settings.max_bad_rows.rejects("qrels"))
        topics = chosen_topics(settings).kept.of_queries(judgments.relevance)
        digest = ensure_index(settings, digest_corpus(settings.corpus).digest, console)
        folder = local_index(settings.index.path, digest).folder
        rows: list[_Row] = []
        with console.bar("tune") as bar:
            for row in _measured(folder, settings, topics, judgments, points):
                rows.append(row)
                bar.update(len(rows), len(points), "searches")
    columns = [Column("k1", "g"), Column("b", "g"), *(Column(name, MEAN) for name in rows[0][1])]
    table = Table(columns, [[point.k1, point.b, *means.values()] for point, means in rows])
    objects = [{"k1": point.k1, "b": point.b, "measures": means} for point, means in rows]
    print_result(table, objects, result_format)
    first = next(iter(rows[0][1]))
    best, means = max(rows, key=lambda row: row[1][first])
    console.note(
        f"best {first}: {means[first]:.4f} at k1={best.k1:g}, b={best.b:g} ({len(topics):,} topics)"
    )


def tuned_points(section: Bm25Config, k1: str | None, b: str | None) -> list[Bm25Config]:
    """Every combination of some values of k1 and b, such as `0.4,0.75`.

    Raises:
        ConfigError: a value is not a number, or is out of range.
    """
    k1s, bs = _values(section, "k1", k1), _values(section, "b", b)
    return [
        section.model_copy(update={"k1": one, "b": other})
        for one, other in itertools.product(k1s, bs)
    ]


def _values(section: Bm25Config, name: str, given: str | None) -> list[float]:
    if given is None:
        return [getattr(section, name)]
    try:
        values = [number(float, text) for text in given.split(",")]
        for value in values:
            Bm25Config.model_validate({name: value})
    except ValidationError as error:
        raise ConfigError(f"--{name} {given!r}: {explain(error, Bm25Config)}") from error
    except ValueError as error:
        raise ConfigError(f"--{name} {given!r}: {error}") from error
    return values


def _measured(
    folder: str,
    settings: RunConfig,
    topics: Sequence[Topic],
    qrels: Qrels,
    points: Sequence[Bm25Config],
) -> Iterator[_Row]:
    """Searches a local index at each point; the mean of each measure is over all topics of the
    qrels.
    """
    assert settings.index is not None
    language, threads = settings.index.language, threads_of(settings)
    # The points differ in k1 and b only.
    excluded = (
        Excluded("nothing", {}) if points[0].exclude is None else read_excluded(points[0].exclude)
    )
    for point in points:
        with Bm25Searcher(
            folder, point.k1, point.b, threads, language, point.expansion
        ) as searcher:
            candidates = searcher.search(
                topics, excluded.depth((topic.query_id for topic in topics), point.k)
            )
        kept, _ = without(excluded, candidates, point.k)
        rankings = (
            (query_id, ranking.doc_ids) for query_id, ranking in rank_candidates(kept).items()
        )
        yield point, evaluate(rankings, qrels, settings.measures).means

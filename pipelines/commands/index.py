"""`beamrank index CONFIG`: builds the Lucene index of a configuration's corpus, and tunes BM25 on it."""

import json
from typing import Annotated

import typer

from beamrank.config.first_stages import Bm25Config
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError
from beamrank.evaluation.measures import parse_measures
from beamrank.evaluation.tables import MEAN, Column, Table
from beamrank.formats.corpora import corpus_digest
from beamrank.formats.qrels import read_qrels
from beamrank.section import NAMED
from beamrank.storage.globs import absolute_glob
from models.lucene.index import local_index
from models.stages.bm25 import ensure_index
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
from pipelines.console.progress import ConsoleProgress
from pipelines.console.run_log import run_log
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_line
from pipelines.plan.make_plan import check_apart, chosen_topics
from pipelines.plan.named_inputs import named_inputs


def index(
    config: ConfigPath,
    overrides: Overrides = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Print BM25's measures for these values of k1 or b, such as k1=0.6,0.9,1.2; once for each of them.",
        ),
    ] = None,
    qrels: Annotated[
        str | None, typer.Option(help="The judgments of the topics, for --sweep; overrides `qrels`.")
    ] = None,
    result_format: ResultFormat = "table",
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Build the index of a configuration from its corpus, or check an existing index against the corpus.

    With --sweep, search it for the judged topics with each combination of k1 and b, and print the measures. Choose on
    topics that you do not report.
    """
    judged = (
        [] if qrels is None else [f"qrels={json.dumps(qrels if qrels.startswith(NAMED) else absolute_glob(qrels))}"]
    )
    settings = load_run_config(config, [*(overrides or ()), *judged])
    if settings.index is None:
        raise ConfigError(f"{config} has no `index:` section: its first stage is an existing run")
    console = console_progress(verbose, quiet)
    settings = named_inputs(settings, console)
    assert settings.index is not None
    check_apart(settings)
    with run_log(console):
        if sweep:
            _sweep(settings, sweep, console, result_format)
            return
        digest = ensure_index(settings, corpus_digest(settings.corpus), console)
    write_line(settings.index.path, digest)


def _sweep(settings: RunConfig, given: list[str], console: ConsoleProgress, result_format: str) -> None:
    """Prints a table of the measures, and names the best values of the first one."""
    from models.lucene.sweep import parse_sweep, sweep

    points = parse_sweep(given, settings.bm25 or Bm25Config())
    parse_measures(settings.measures)
    if settings.qrels is None:
        raise ConfigError("--sweep measures what BM25 finds: give --qrels, or `qrels` in the configuration")
    qrels = read_qrels(settings.qrels)
    topics = [topic for topic in chosen_topics(settings).kept if topic.query_id in qrels.relevance]
    digest = ensure_index(settings, corpus_digest(settings.corpus), console)
    assert settings.index is not None
    folder = local_index(settings.index.path, digest).folder
    rows = []
    with console.bar("sweep") as bar:
        for row in sweep(folder, topics, qrels, points, settings.measures, threads_of(settings)):
            rows.append(row)
            bar.update(len(rows), len(points), "searches")
    columns = [Column("k1", "g"), Column("b", "g"), *(Column(name, MEAN) for name in rows[0].means)]
    table = Table(columns, [[row.k1, row.b, *row.means.values()] for row in rows])
    print_result(table, [{"k1": row.k1, "b": row.b, "measures": row.means} for row in rows], result_format)
    first = next(iter(rows[0].means))
    best = max(rows, key=lambda row: row.means[first])
    console.note(f"best {first}: {best.means[first]:.4f} at k1={best.k1:g}, b={best.b:g} ({len(topics):,} topics)")

"""`beamrank index CONFIG` and `beamrank stats CONFIG`: a collection before a run."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError
from beamrank.evaluation.collection import CountUnits, count_words, measure_collection
from beamrank.formats.corpora import CorpusConfig, DocBatch, digest_corpus, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.topics import read_topics
from beamrank.progress import Progress
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
from pipelines.plan.named_inputs import named_inputs

_NO_LIMIT = 1 << 40


def index(config: ConfigPath, overrides: Overrides = None, verbose: Verbose = False, quiet: Quiet = False) -> None:
    """Build the index of a configuration from its corpus, or check an existing index against the corpus."""
    # They take a second to import, and other commands do without.
    from models.stages.bm25 import ensure_index
    from pipelines.plan.make_plan import check_apart

    settings = load_run_config(config, overrides)
    if settings.index is None:
        raise ConfigError(f"{config} has no `index:` section: its first stage is an existing run")
    console = console_progress(verbose, quiet)
    settings = named_inputs(settings, console)
    assert settings.index is not None
    check_apart(settings)
    with run_log(console):
        digest = ensure_index(settings, digest_corpus(settings.corpus).digest, console)
    write_line(settings.index.path, digest)


def stats(
    config: ConfigPath,
    overrides: Overrides = None,
    beyond: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Show the share of longer texts; may be given several times. Default: input.max_query_length and "
            "input.max_length.",
        ),
    ] = None,
    result_format: ResultFormat = "table",
) -> None:
    """Show how many queries, docs and judgments a configuration has, and how long its texts are.

    Reads the corpus once. Words are separated by white space; wordpieces are those of the checkpoints' tokenizers,
    without special tokens.
    """
    console = ConsoleProgress()
    settings = named_inputs(load_run_config(config, overrides), console)
    limits = beyond or [settings.input.max_query_length, settings.input.max_length]
    qrels = None if settings.qrels is None else read_qrels(settings.qrels)
    units = {"words": count_words, **_wordpieces(settings)}
    with console.bar("stats") as bar:
        docs = _docs(settings.corpus, bar)
        found = measure_collection(read_topics(settings.topics), docs, qrels, units, sorted(set(limits)))
    for line in found.lines():
        console.note(f"note: {line}")
    if qrels is None:
        console.note("note: no qrels: the configuration has no judgments to count")
    if len(units) == 1:
        console.note("note: no wordpieces: the configuration names no checkpoint (`mono`)")
    print_result(found.table(), found.as_object(), result_format)


def _docs(corpus: CorpusConfig, progress: Progress) -> Iterator[DocBatch]:
    units = list_units(corpus)
    for done, unit in enumerate(units):
        progress.update(done, len(units), "units of the corpus")
        yield from read_unit(unit)


def _wordpieces(settings: RunConfig) -> dict[str, CountUnits]:
    """How wordpieces are counted, for each distinct tokenizer; only the tokenizers are fetched, not the weights."""
    # The libraries take a second to import, and other commands do without.
    from models.checkpoints.tokenizers import fetch_tokenizer
    from models.tokenizers.protocol import Tokenizer

    def counter(tokenizer: Tokenizer) -> CountUnits:
        def count(texts: Sequence[str]) -> list[int]:
            lengths: list[int] = tokenizer.encode(texts, _NO_LIMIT).ids.value_lengths().to_pylist()
            return lengths

        return count

    found: dict[str, CountUnits] = {}
    digests: set[str] = set()
    for kind, section in (("mono", settings.mono), ("duo", settings.duo)):
        if section is not None:
            tokenizer = fetch_tokenizer(section.checkpoint)
            if tokenizer.digest not in digests:
                digests.add(tokenizer.digest)
                found[f"wordpieces ({kind})" if found else "wordpieces"] = counter(tokenizer)
    return found

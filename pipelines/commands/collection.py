"""`beamrank index CONFIG`."""

from beamrank.errors import ConfigError
from beamrank.formats.corpora import digest_corpus
from pipelines.commands.arguments import (
    ConfigPath,
    Overrides,
    Quiet,
    Verbose,
    console_progress,
    load_run_config,
)
from pipelines.console.run_log import run_log
from pipelines.console.terminal import write_line
from pipelines.plan.named_inputs import named_inputs


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

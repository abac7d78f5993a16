"""`beamrank index CONFIG`: builds the Lucene index of a configuration's corpus."""

from beamrank.config import load_config
from beamrank.corpora import corpus_digest
from beamrank.errors import ConfigError
from pipelines.commands.arguments import ConfigPath, Overrides
from pipelines.planning import check_apart, ensure_index
from pipelines.progress import Talk
from pipelines.terminal import write_line


def index(config: ConfigPath, overrides: Overrides = None) -> None:
    """Build the index that `index:` names from `corpus:`; one that is there is checked against the corpus."""
    settings = load_config(config, overrides or ())
    if settings.index is None:
        raise ConfigError(f"{config} has no `index:` section: its first stage is a run that is given")
    check_apart(settings)
    digest = ensure_index(settings, corpus_digest(settings.corpus), Talk())
    write_line(settings.index.path, digest)

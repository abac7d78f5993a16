"""Options of `beamrank run` that packages bring."""

from collections.abc import Mapping
from typing import Any, Protocol

from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError
from beamrank.plugins import Registry, options_of


class RunOption(Protocol):
    """Makes the configuration that is run of the one that a user gives.

    Its keyword-only parameters, with typer's annotations, are options of `beamrank run`, and keys
    of `options` in `beamrank.run`.
    """

    def __call__(
        self, config: RunConfig, max_inferences: int | None, /, **options: Any
    ) -> RunConfig:
        """`max_inferences` is the limit that the user gives."""


RUN_OPTIONS: Registry[RunOption] = Registry("option of `run`", "beamrank.run_options", {})


def with_options(
    config: RunConfig, max_inferences: int | None, given: Mapping[str, Any]
) -> RunConfig:
    """A configuration, changed by options of packages; ConfigError where no package has one."""
    left = dict(given)
    for change in RUN_OPTIONS.importable().values():
        chosen = {
            parameter.name: left.pop(parameter.name)
            for parameter in options_of(change)
            if parameter.name in left
        }
        config = change(config, max_inferences, **chosen)
    if left:
        raise ConfigError(
            f"no package has the option {min(left)!r}: install the one that brings it, or leave "
            "it out"
        )
    return config

"""Requests cost money, and texts leave this machine: how many requests may be made, and where."""

import sys

from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ConfigError
from contrib.listwise.client import Access

_granted: set[str] = set()


def check_requests(stage: str, requests: int, most: int | None) -> None:
    """Raises BeamrankError where a stage would make more requests than its `max_requests`."""
    if most is not None and requests > most:
        raise BeamrankError(
            f"{stage} makes up to {requests:,} requests, and {stage}.max_requests allows {most:,}: "
            "raise it, or lower k; `beamrank plan` shows each stage"
        )


def check_host(stage: str, requests: int, access: Access, most: int | None) -> None:
    """Asks once on a terminal whether texts may go to another machine; with `max_requests` the
    user has said so.

    Raises:
        ConfigError: they may not, or nobody can be asked.
    """
    if not requests or access.is_here or most is not None or access.host in _granted:
        return
    what = (
        f"{stage} sends texts of topics and docs to {access.host}, in up to {requests:,} requests, "
        "which may cost money"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"{what}: say so with {stage}.max_requests, the most that you allow")
    # It takes a while to import.
    import typer

    if not typer.confirm(f"{what}. Go on?", err=True):
        raise ConfigError(f"{what}: nothing was started")
    _granted.add(access.host)


def with_consent(config: RunConfig, max_inferences: int | None, /) -> RunConfig:  # noqa: ARG001
    """The configuration, once its requests are allowed."""
    lists = {
        own.name: own.section
        for own in config.cascade
        if own.kind == "listwise" and own.section.endpoint
    }
    if not lists:
        return config
    # They take seconds to import.
    from pipelines.plan.estimate import estimate

    estimated = estimate(config)
    for stage in estimated.stages:
        section = lists.get(stage.stage)
        if section is not None:
            requests = stage.remaining_inferences
            check_host(stage.stage, requests, section.access, section.max_requests)
            # Where topics are known, they are counted exactly before the stage.
            if not estimated.topics_known:
                check_requests(stage.stage, requests, section.max_requests)
    return config

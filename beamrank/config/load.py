"""The configuration of a run, read from a file and from a plan."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from beamrank.config.cascade import anchor_stages, find_section, one_list
from beamrank.config.run import RunConfig
from beamrank.config.yaml import (
    anchor_paths,
    check_document,
    explain,
    folder_of,
    read_document,
)
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.urls import refuse_credentials


def load_config(
    source: str | Mapping[str, Any],
    overrides: Sequence[str] = (),
    output: str | None = None,
    reuse: Sequence[str] = (),
) -> RunConfig:
    """Reads a YAML configuration.

    Args:
        source: the file, to whose folder relative paths inside it are relative; or its content, a
            pipe, or `-` for standard input, with paths relative to the current folder.
        overrides: `section.key=value` strings; the value is YAML.
        output: replaces `output`, relative to the current folder.
        reuse: more outputs for `reuse`, relative to the current folder.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, a key or a value is wrong, or a text can carry
            a credential.
    """
    refuse_credentials(output or "", "--output")
    refuse_credentials(list(reuse), "--reuse")
    document = read_document(source, RunConfig, overrides, find_section)
    folder = folder_of(source)
    with suppress(ValueError):  # It is refused when the document is checked.
        document = one_list(document)
        anchor_stages(document, folder)
    anchor_paths(document, RunConfig, folder)
    if output is not None:
        document["output"] = storage.absolute(output)
    if reuse and isinstance(document.setdefault("reuse", []), list):
        document["reuse"] = [*map(storage.absolute, reuse), *document["reuse"]]
    return check_document(document, RunConfig, source if isinstance(source, str) else "config")


def stored_config(values: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration that a plan holds.

    Raises:
        PreflightError: it has keys or values that this beamrank does not know, or configures no
            run.
    """
    if "topics" not in values:
        raise PreflightError(
            f"{where} holds what another command made, without topics and rankings: give an "
            "output of `beamrank run`"
        )
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise PreflightError(
            f"the plan in {where} was made by another version, or with a stage that is not "
            f"installed here: {explain(error, RunConfig)}. Run again first, or install the package "
            "that brings it"
        ) from error

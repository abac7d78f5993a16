"""The settings of object stores that a launcher sends to its workers.

Workers do not always inherit the launcher's environment, and runners do not pass pipeline options to every worker. So
the settings that locate a store travel with the work, by value. Credentials never do: workers have their own, and
runners write pipelines to disk and to logs.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fsspec.config

from beamrank.storage.url_credentials import carries_credentials

_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "STORAGE_EMULATOR_HOST",
    "GOOGLE_CLOUD_PROJECT",
    "GCSFS_DEFAULT_PROJECT",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT",
)
_OPTIONS = {
    "addressing_style",
    "anon",
    "default_location",
    "endpoint_url",
    "project",
    "region_name",
    "requester_pays",
    "signature_version",
    "use_ssl",
}
_SECTIONS = {"client_kwargs", "config_kwargs", "s3"}


@dataclass(frozen=True)
class StoreSettings:
    """Settings without secrets: environment variables, and options of fsspec's configuration by protocol."""

    variables: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]

    @classmethod
    def here(cls) -> "StoreSettings":
        """The settings of this process, without anything that could be a secret."""
        variables = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
        options = {protocol: _plain(values) for protocol, values in fsspec.config.conf.items() if values}
        return cls(
            {name: value for name, value in variables.items() if not carries_credentials(value)},
            {protocol: values for protocol, values in options.items() if values},
        )

    def apply(self) -> None:
        """Applies them to this process; its own settings take precedence."""
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        for protocol, values in self.options.items():
            fsspec.config.conf[protocol] = {**values, **fsspec.config.conf.get(protocol, {})}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that cannot be secrets; `token: anon` asks for anonymous access."""
    kept = {name: value for name, value in values.items() if name in _OPTIONS and not carries_credentials(str(value))}
    if values.get("token") == "anon":
        kept["token"] = "anon"
    sections = {name: _plain(values[name]) for name in _SECTIONS if isinstance(values.get(name), Mapping)}
    return kept | {name: section for name, section in sections.items() if section}

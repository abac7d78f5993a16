"""How a launcher tells its workers where the object stores are.

Workers do not always inherit the launcher's environment, and runners do not hand pipeline options to every worker. So
what says where a store is goes with the work, by value. Who may use it never does: workers have credentials of their
own, and a pipeline, which runners write to disk and to logs, is no place for a secret.
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
    """What may be told: environment variables, and options of fsspec's configuration by protocol."""

    variables: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]

    @classmethod
    def here(cls) -> "StoreSettings":
        """This process's settings, less everything that could be a secret."""
        variables = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
        options = {protocol: _plain(values) for protocol, values in fsspec.config.conf.items() if values}
        return cls(
            {name: value for name, value in variables.items() if not carries_credentials(value)},
            {protocol: values for protocol, values in options.items() if values},
        )

    def apply(self) -> None:
        """Makes them this process's; what it has of its own stands."""
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        for protocol, values in self.options.items():
            fsspec.config.conf[protocol] = {**values, **fsspec.config.conf.get(protocol, {})}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are known to be no secrets; `token: anon` is the wish to have none."""
    kept = {name: value for name, value in values.items() if name in _OPTIONS and not carries_credentials(str(value))}
    if values.get("token") == "anon":
        kept["token"] = "anon"
    sections = {name: _plain(values[name]) for name in _SECTIONS if isinstance(values.get(name), Mapping)}
    return kept | {name: section for name, section in sections.items() if section}

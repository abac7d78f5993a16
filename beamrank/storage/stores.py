"""The particulars of object stores: conditional puts, refusals, and the settings that
workers get.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import fsspec.config

from beamrank.errors import PreflightError, TemporaryError
from beamrank.storage.urls import carries_credentials, hide_credentials

_ATTEMPTS = 5
_log = logging.getLogger(__name__)
_EXTRAS = {"abfs": "azure", "abfss": "azure", "az": "azure", "s3": "s3", "s3a": "s3"}
_ADVICE = (
    "check the credentials (they may have expired, or not allow this: reading takes the "
    "permission to list, too), the region, the endpoint (AWS_ENDPOINT_URL) and the clock of this "
    "machine"
)
_UNCONDITIONAL = (
    "the store does not support a request that beamrank needs, most likely a put that creates and "
    "never replaces (If-None-Match): use a version of the store, or a different one, that does"
)
# Codes of S3, or HTTP statuses where the answer had no body.
_OTHER_REGION = {
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "301",
    "307",
    "400",
}
_NOT_ALLOWED = {
    *(
        "ExpiredToken",
        "TokenRefreshRequired",
        "InvalidToken",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
    ),
    *("AccessDenied", "RequestTimeTooSkewed", "401", "403"),
}
_NOT_SUPPORTED = {"NotImplemented", "501"}
# HTTP statuses of a server that could not answer, or asks for patience.
_BUSY = re.compile(r"408|429|5(?!01)\d\d")
# Classes of Python, aiohttp, botocore, azure, google-auth, httpx and requests; their own subclasses
# are many.
_NO_ANSWER = {
    *("ConnectionError", "TimeoutError", "gaierror", "ClientConnectionError"),
    *("ClientPayloadError", "HTTPClientError", "ServiceRequestError", "ServiceResponseError"),
    *("TransportError", "Timeout"),
}
# Attributes of the file systems of s3fs, gcsfs, adlfs, and of others of fsspec.
_ENDPOINTS = ("_s3.meta.endpoint_url", "_location", "service_client.primary_hostname", "host")
_STATUSES = ("status", "status_code", "code")
_NOT_ASKED = {"OfflineModeIsEnabled"}
# The compressions that a store or a client unpacks without being asked, by Content-Encoding.
_UNPACKED = {"gzip", "x-gzip", "deflate", "br", "zstd"}
_VARIABLES = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *(
        "STORAGE_EMULATOR_HOST",
        "GOOGLE_CLOUD_PROJECT",
        "GCSFS_DEFAULT_PROJECT",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT",
    ),
)
_OPTIONS = {
    *(
        "addressing_style",
        "anon",
        "default_location",
        "endpoint_url",
        "project",
        "region_name",
        "requester_pays",
    ),
    *("signature_version", "use_ssl"),
}
_SECTIONS = {"client_kwargs", "config_kwargs", "s3"}


class UnreachableError(OSError):
    """A store, or a file at one, cannot be reached; the message names the URL."""

    exit_code = PreflightError.exit_code


class UnansweredError(TemporaryError, UnreachableError):
    """A store does not answer, or not now."""


def unreachable(url: str, error: Exception) -> UnreachableError:
    """The error of a library of a store; its own may not name the URL."""
    return (UnansweredError if is_unanswered(error) else UnreachableError)(
        f"cannot reach {url}: {type(error).__name__}: {hide_credentials(str(error))}. Check the "
        "URL, the network and the credentials of this machine (docs/guide/storage.md)"
    )


def is_unanswered(error: BaseException | None) -> bool:
    """Whether a store or a server did not answer, or could not now, by a chain of errors of its
    library.
    """
    while error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & _NO_ANSWER or _BUSY.fullmatch(_status(error)):
            return not names & _NOT_ASKED
        # The context may be an error that a caller handles.
        error = error.__cause__
    return False


def _status(error: BaseException) -> str:
    """The HTTP status of an answer, if an error holds one."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    holders = [(holder, name) for holder in (error, response) for name in _STATUSES]
    return str(next(filter(None, (getattr(holder, name, None) for holder, name in holders)), None))


def missing_library(url: str, error: ImportError) -> PreflightError:
    """The error of a protocol whose library is not installed."""
    extra = _EXTRAS.get(url.partition("://")[0])
    remedy = f"pip install '.[{extra}]', on the workers too" if extra else "install what it names"
    return PreflightError(f"cannot read or write {url}: {error}. To do so, {remedy}")


def check_refusal(url: str, error: Exception) -> None:
    """Raises UnreachableError, with what to check, where an error is a store's refusal of a
    request.
    """
    for code, headers in _answers(error):
        region = headers.get("x-amz-bucket-region")
        if code in _OTHER_REGION and region:
            advice = f"the bucket is in the region {region}: set AWS_REGION={region}"
        elif code in _OTHER_REGION | _NOT_ALLOWED:
            advice = _ADVICE
        elif code in _NOT_SUPPORTED:
            advice = _UNCONDITIONAL
        else:
            continue
        answer = " ".join(hide_credentials(str(error)).split()).rstrip(".")
        raise UnreachableError(
            f"{url} is refused by its store ({answer}): {advice} (docs/guide/storage.md)"
        ) from error


def _answers(error: BaseException | None) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The codes and headers of a store's answers in a chain of errors."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):
            about = response.get("ResponseMetadata", {})
            # The status where the answer had no body: a store that says why has a code of its own.
            code = str(response.get("Error", {}).get("Code", about.get("HTTPStatusCode")))
            yield code, about.get("HTTPHeaders", {})
        # Errors of gcsfs and adlfs, which always say why; for 403 gcsfs has only the text.
        code = str(getattr(error, "code", None) or getattr(error, "status_code", None))
        if code in ("401", "403", "501"):
            yield code, {}
        if str(error).startswith("Forbidden: "):
            yield "403", {}
        error = error.__cause__ or error.__context__


def endpoint(filesystem: Any) -> str:
    """Where the library of a store sends its requests; empty where it does not tell."""
    for name in _ENDPOINTS:
        with suppress(AttributeError):
            return str(attrgetter(name)(filesystem))
    return ""


def refuse_unpacked(url: str, details: Mapping[str, Any]) -> None:
    """Raises PreflightError for a file that its store unpacks: gcsfs reads only as many bytes as it
    has packed.
    """
    encoding = details.get("contentEncoding")
    if encoding in _UNPACKED:
        raise PreflightError(
            f"{url} is stored with Content-Encoding: {encoding}. The store unpacks it but tells "
            "its packed size, so its end would be lost. Store it as a plain compressed file: "
            f"`gcloud storage objects update --clear-content-encoding {url}`, with a name that "
            "ends in .gz; or upload it again without -Z"
        )


def create(filesystem: Any, path: str, content: bytes) -> bool:
    """Writes a file of an object store if it does not exist; returns whether it did."""
    for _ in range(_ATTEMPTS):
        try:
            filesystem.pipe_file(path, content, mode="create")
        except Exception as error:
            if _says_that_it_exists(error):
                return False
            # S3 did not decide which of two concurrent writers was first, and asks for a retry.
            if _store_code(error) != "ConditionalRequestConflict":
                raise
            _log.info("retrying the put of %s: %s", path, error)
        else:
            return True
    raise OSError(f"gave up after {_ATTEMPTS} conflicting concurrent writes to {path}")


def _says_that_it_exists(error: BaseException | None) -> bool:
    """Whether a store refused a put because the file exists.

    s3fs knows only the message of AWS for that. gcsfs, once the last piece of a large file is
    refused, cancels the upload, which has ended already, and raises the error of that.
    """
    while error is not None:
        if isinstance(error, FileExistsError) or _store_code(error) in (
            "PreconditionFailed",
            "412",
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _store_code(error: BaseException) -> str | None:
    response = getattr(error.__cause__, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


@dataclass(frozen=True)
class StoreSettings:
    """Settings without secrets: environment variables, and options of fsspec's configuration by
    protocol.

    Workers do not always inherit the launcher's environment, and runners do not pass pipeline
    options to every worker. So the settings that locate a store travel with the work, by value.
    Credentials never do: workers have their own, and runners write pipelines to disk and to logs.
    """

    variables: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]

    @classmethod
    def here(cls) -> "StoreSettings":
        """The settings of this process, without anything that could be a secret."""
        variables = {name: os.environ.get(name, "") for name in _VARIABLES}
        options = {protocol: _plain(values) for protocol, values in fsspec.config.conf.items()}
        return cls(
            {
                name: value
                for name, value in variables.items()
                if value and not carries_credentials(value)
            },
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
    kept = {
        name: value
        for name, value in values.items()
        if name in _OPTIONS and not carries_credentials(str(value))
    }
    if values.get("token") == "anon":
        kept["token"] = "anon"
    sections = {
        name: _plain(values[name]) for name in _SECTIONS if isinstance(values.get(name), Mapping)
    }
    return kept | {name: section for name, section in sections.items() if section}

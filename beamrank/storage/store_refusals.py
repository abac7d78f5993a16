"""Why a store refused a request, in words that tell what to do; and what is refused of a store."""

from collections.abc import Iterator, Mapping
from typing import Any

from beamrank.errors import PreflightError

_EXPIRED = "the credentials have expired, or have the session token of others; log in again"
_REGION = "the bucket is in another region, or at another endpoint: set AWS_REGION, or AWS_ENDPOINT_URL"
_CLOCK = "the clock of this machine is wrong: set it"
_UNKNOWN_KEY = "the store does not know these credentials: check them, and the endpoint (AWS_ENDPOINT_URL)"
_FORBIDDEN = (
    "these credentials may not do this (reading takes the permission to list, too: without it a file that does not "
    "exist is refused). Credentials that have expired, a clock that is wrong, and a bucket whose requester pays "
    "(requester_pays in fsspec's configuration) are other causes"
)
_UNCONDITIONAL = (
    "the store does not support a request that beamrank needs, most likely a put that creates and never replaces "
    "(If-None-Match): use a version of the store, or another one, that does"
)
# By the code of S3, or by the HTTP status where the answer had no body.
_CAUSES = {
    **dict.fromkeys(("ExpiredToken", "TokenRefreshRequired", "InvalidToken", "401"), _EXPIRED),
    **dict.fromkeys(("PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "301", "307"), _REGION),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch"), _UNKNOWN_KEY),
    **dict.fromkeys(("AccessDenied", "403"), _FORBIDDEN),
    **dict.fromkeys(("NotImplemented", "501"), _UNCONDITIONAL),
    "RequestTimeTooSkewed": _CLOCK,
    "400": f"the store does not tell why. Most often {_EXPIRED}; else {_REGION}",
}
# What a store or a client unpacks without being asked, by Content-Encoding.
_UNPACKED = {"gzip", "x-gzip", "deflate", "br", "zstd"}


def refusal_cause(error: BaseException) -> str | None:
    """The likely cause of an error of a store's library; None where the store did not refuse, or for another reason."""
    for code, headers in _answers(error):
        region = headers.get("x-amz-bucket-region")
        if region and _CAUSES.get(code) in (_REGION, _CAUSES["400"]):
            return f"the bucket is in the region {region}: set AWS_REGION={region}"
        if code in _CAUSES:
            return _CAUSES[code]
    return None


def refuse_unpacked(url: str, details: Mapping[str, Any]) -> None:
    """Refuses a file that its store unpacks: gcsfs reads as many bytes of the content as the packed file has.

    Raises:
        PreflightError: the store does.
    """
    encoding = details.get("contentEncoding")
    if encoding in _UNPACKED:
        raise PreflightError(
            f"{url} is stored with Content-Encoding: {encoding}. The store unpacks it but tells its packed size, "
            "so its end would be lost. Store it as a plain compressed file: `gcloud storage objects update "
            f"--clear-content-encoding {url}`, with a name that ends in .gz; or upload it again without -Z"
        )


def _answers(error: BaseException | None) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The codes and headers of a store's answers in a chain of errors."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):
            about = response.get("ResponseMetadata", {})
            headers = about.get("HTTPHeaders", {})
            # The status where the answer had no body: a store that says why has a code of its own.
            yield str(response.get("Error", {}).get("Code", about.get("HTTPStatusCode"))), headers
        # Those of gcsfs and adlfs, which always say why; for 403 gcsfs has the text alone.
        code = str(getattr(error, "code", None) or getattr(error, "status_code", None))
        if code in ("401", "403", "501"):
            yield code, {}
        if str(error).startswith("Forbidden: "):
            yield "403", {}
        error = error.__cause__ or error.__context__

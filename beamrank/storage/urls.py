"""Credentials in URLs, and texts that terminals and logs can show."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from beamrank.errors import ConfigError

_DECODINGS = 5
_LONGEST = 4096
_START = re.compile(
    r"(?P<protocol>[a-z][a-z0-9+.\-]{0,30}):[/\\]{2}"
    r"|\b(?P<known>https?|ftps?|sftp|ssh|s3a?|gc?s|hf|hdfs|webhdfs|abfss?|adl|az|github|smb):[/\\]?"
    r"|\b(?P<slip>https?|ftps?|sftp|s3a?|gc?s)\s{0,3}[:;]?\s{0,3}[/\\]{2}",
    re.IGNORECASE,
)
_IPV6_HOST = re.compile(r"\[[0-9a-f:.]+\]", re.IGNORECASE)
_HOST = re.compile(r"[^@:]*(:\d{1,5})?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._\-]*")
# hf://datasets/org/name@revision/path
_HUB_PLACE = re.compile(r"(?![^/]*:)(?:(?:(?:datasets|spaces|buckets)/)?[\w.\-]+/[\w.\-]+@[^@]*|[^@]*)")
# Elsewhere an @ in a path may end a password that has a slash in it.
_STORES = frozenset({"s3", "s3a", "gs", "gcs"})
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|ya29\.[\w\-]{16,}|AIza[\w\-]{30,}|api_org_[A-Za-z0-9]{16,}|glpat-[\w\-]{16,}"
    r"|sk-[A-Za-z0-9_\-]{24,}|xox[abeprs]-[\w\-]{16,}|eyJ[\w\-]{8,}\.eyJ[\w\-]{8,}\.[\w\-]+|(?i:Bearer)\s+[\w.~+/\-]{16,}=*)"
    # An assignment, as environments, connection strings, key files, JSON and headers have it. Two short names are
    # those of folders too (token=3): they count in upper case, or before a colon and a space.
    r"|(?P<name>(?:SECRET|TOKEN|\b(?i:SECRET|TOKEN)(?=[\"']?\s{0,3}:\s)"
    r"|(?i:PASSWORD|PASSWD|CLIENT_?SECRET|API[_-]?KEY|ACCESS_?KEY|ACCOUNT_?KEY|(?:ACCESS|SESSION|AUTH)_?TOKEN"
    r"|SharedAccess(?:Key|Signature)))[\"']?\s{0,3}[=:]\s{0,3})[\"']?[^\s'\"]+"
    r"|(?i:Authorization):\s*\S.*|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*|\"private_key\"\s*:.*"
)
_URL_IN_TEXT = re.compile(r"(?:[a-z0-9]{1,30}::){0,5}[a-z][a-z0-9+.\-]{0,30}:(?://|\\\\)[^\s'\"<>]+", re.IGNORECASE)
_AFTER_URL = ".,;:!?)]}&#"


def carries_credentials(text: str) -> bool:
    """Whether a text holds a URL in a form that can carry a credential, or a token of a known service."""
    # Lookalike letters count as those of a URL.
    plain = unicodedata.normalize("NFKC", _decoded(text))
    return _TOKEN.search(plain) is not None or any(not _is_harmless(*url) for url in _urls(plain))


def refuse_credentials(values: Any, where: str) -> None:
    """Makes sure that no string of a configuration, however deep, can carry a credential.

    Raises:
        ConfigError: one can; the message does not repeat it.
    """
    for key, text in _strings(values):
        if carries_credentials(text):
            raise ConfigError(
                f"{f'{where}: {key}' if key else where} holds a token, or a URL in a form that can carry a credential: "
                "a user or a password before @, or anything after ?, #, & or ;. Paths are written to the plan and to "
                "messages, where others can read them. Leave it out, and give credentials as the storage's library "
                "takes them: environment variables, or files such as ~/.aws/credentials (docs/internals/security.md)"
            )


def hide_credentials(text: str) -> str:
    """A message of a library without the credentials of its URLs: a store may redirect to a signed one."""
    return _TOKEN.sub(_without_value, _URL_IN_TEXT.sub(_hidden, text))


def _without_value(found: re.Match[str]) -> str:
    """An assignment keeps its name."""
    return f"{found['name'] or ''}[hidden]"


def _hidden(found: re.Match[str]) -> str:
    url = found[0].rstrip(_AFTER_URL)
    rest = found[0][len(url) :]
    if not carries_credentials(url):
        return found[0]
    shown = re.split(r"[?#;&]", url, maxsplit=1)[0]
    shown = f"{url.partition(':')[0]}://" if carries_credentials(shown) else shown
    return f"{shown}[hidden]{rest}"


def _decoded(text: str) -> str:
    for _ in range(_DECODINGS):
        if "%" not in text:
            break
        text = unquote(text)
    return text


def _urls(text: str) -> Iterator[tuple[str, str]]:
    """The protocol of each URL of a text, and what follows it; a chain such as `simplecache::s3://...` has several."""
    if _START.search(text) is None:
        return
    for link in _IPV6_HOST.sub("localhost", text).split("::"):
        starts = list(_START.finditer(link))
        if not starts:
            yield "", link
            continue
        ends = [start.start() for start in starts[1:]] + [len(link)]
        for start, end in zip(starts, ends, strict=True):
            yield (start["protocol"] or start["known"] or start["slip"]).lower(), link[start.end() : end]


def _is_harmless(protocol: str, rest: str) -> bool:
    if len(rest) > _LONGEST or re.search(r"[?#;&]", rest):
        return False
    if protocol == "hf":
        return _HUB_PLACE.fullmatch(rest) is not None
    host, path = re.fullmatch(r"([^/\\]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    if _HOST.fullmatch(unicodedata.normalize("NFKC", host)) is None:
        return False
    if protocol in ("http", "https") and "=" in path:
        return False
    if protocol == "file":
        return "@" not in path or not host
    return "@" not in path or (protocol in _STORES and _BUCKET.fullmatch(host) is not None)


def _strings(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string with its dotted key; a key before its value."""
    if isinstance(values, str):
        yield key, values
    elif isinstance(values, dict):
        for name, value in values.items():
            yield f"a key of {key or 'it'}", str(name)
            yield from _strings(value, f"{key}.{name}".lstrip("."))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _strings(value, key)


_KEPT = "\n\t"
# C0 and C1, marks that reorder text, Unicode's line ends, and bytes of a path that are not UTF-8.
_CONTROLS = {
    code: f"\\u{code:04x}"
    for first, last in (
        (0x00, 0x1F),
        (0x7F, 0x9F),
        (0x61C, 0x61C),
        (0x200E, 0x200F),
        (0x2028, 0x202E),
        (0x2066, 0x2069),
        (0xD800, 0xDFFF),
    )
    for code in range(first, last + 1)
    if chr(code) not in _KEPT
}


def printable(text: str) -> str:
    """A text with its control characters written out as JSON does; line ends and tabs stay."""
    return text.translate(_CONTROLS)


def shown_message(text: str) -> str:
    """A message as standard error and logs show it: printable, and without the credentials of a library's URLs."""
    return printable(hide_credentials(text))

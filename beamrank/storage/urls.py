"""Credentials in URLs, and texts that terminals and logs can show.

Paths are written to plans, logs and messages, so URLs are limited to forms that hold no credential.
A list of bad forms is never complete, so this is a list of good ones (docs/internals/security.md):
a protocol, a host or bucket, a port where needed, and a path. Paths of this machine are never
restricted.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from beamrank.errors import ConfigError

_DECODINGS = 5
_LONGEST = 4096
_START = re.compile(
    r"(?P<any>[a-z][a-z0-9+.\-]{0,30}):[/\\]{2}"
    r"|\b(?P<slip>https?|ftps?|sftp|ssh|s3a?|gc?s|hf|hdfs|webhdfs|abfss?|adl|az|github|smb):[/\\]?"
    # Mistyped: without the colon, with a semicolon, or with spaces around it.
    r"|\b(?P<typo>https?|ftps?|sftp|s3a?|gc?s)\s{0,3}[:;]?\s{0,3}[/\\]{2}",
    re.IGNORECASE,
)
_IPV6_HOST = re.compile(r"\[[0-9a-f:.]+\]", re.IGNORECASE)
_HOST = r"[^@:/\\]*(?::\d{1,5})?(?![^/\\])"
# Characters that may follow the protocol: below a bucket, also an @. After a host, one may end a
# password that has a slash in it.
_GOOD = {
    "http": re.compile(rf"{_HOST}[^@=]*"),
    "file": re.compile(rf"/.*|{_HOST}[^@]*", re.DOTALL),
}
_BELOW_BUCKET = re.compile(rf"{_HOST}[^@]*|[a-z0-9][a-z0-9._\-]*/.*", re.DOTALL)
_TOKEN = re.compile(
    # As services make them: after a short name a long word of capitals, small letters and, in two
    # places, digits; or of JSON (JWT); or after the word in a header.
    r"(?<![A-Za-z0-9])(?:(?:[A-Za-z0-9]{1,12}[_\-]){1,3}"
    r"(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{16,}[\w\-]*"
    r"|eyJ[\w\-]{8,}\.eyJ[\w\-]{8,}\.[\w\-]+|(?i:Bearer)\s+[\w.~+/\-]{16,}=*)"
    # An assignment, as environments, connection strings, key files, JSON and headers have it. Two
    # short names are folders' names too (token=3): they count in upper case, or before a colon and
    # a space.
    r"|(?P<name>(?:SECRET|TOKEN|\b(?i:SECRET|TOKEN)(?=[\"']?\s{0,3}:\s)"
    r"|(?i:PASSWORD|PASSWD|CLIENT_?SECRET|API[_-]?KEY|ACCESS_?KEY|ACCOUNT_?KEY|(?:ACCESS|SESSION|AUTH)_?TOKEN"
    r"|SharedAccess(?:Key|Signature)))[\"']?\s{0,3}[=:]\s{0,3})[\"']?[^\s'\"]+"
    r"|(?i:Authorization):\s*\S.*|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*|\"private_key\"\s*:.*"
)
_URL_IN_TEXT = re.compile(
    r"(?:[a-z0-9]{1,30}::){0,5}[a-z][a-z0-9+.\-]{0,30}:(?://|\\\\)[^\s'\"<>]+", re.IGNORECASE
)
_AFTER_URL = ".,;:!?)]}&#"
# C0 and C1 without line ends and tabs, marks that reorder text, Unicode's line ends, and bytes of a
# path that are not UTF-8.
_CONTROLS = {
    code: f"\\u{code:04x}"
    for first, last in (
        *(
            (0x00, 0x08),
            (0x0B, 0x1F),
            (0x7F, 0x9F),
            (0x61C, 0x61C),
            (0x200E, 0x200F),
            (0x2028, 0x202E),
        ),
        *((0x2066, 0x2069), (0xD800, 0xDFFF)),
    )
    for code in range(first, last + 1)
}


def carries_credentials(text: str) -> bool:
    """Whether a text holds a URL in a form that can carry a credential, or a token of a service."""
    for _ in range(_DECODINGS):
        text = unquote(text) if "%" in text else text
    # Lookalike letters count as letters of a URL.
    plain = unicodedata.normalize("NFKC", text)
    return _TOKEN.search(plain) is not None or not all(map(_is_harmless, _links(plain)))


def _links(text: str) -> Iterator[str]:
    """The URLs of a text; a chain such as `zip://a::s3://...` has several."""
    if _START.search(text) is not None:
        for link in _IPV6_HOST.sub("localhost", text).split("::"):
            starts = [match.start() for match in _START.finditer(link)] or [0]
            yield from (
                link[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)
            )


def _is_harmless(link: str) -> bool:
    start = _START.match(link)
    protocol, rest = (
        ((start["any"] or start["slip"] or start["typo"]).lower(), link[start.end() :])
        if start
        else ("", link)
    )
    if len(rest) > _LONGEST or re.search(r"[?#;&]", rest):
        return False
    good = _GOOD.get("http" if protocol == "https" else protocol, _BELOW_BUCKET)
    return good.fullmatch(rest) is not None


def refuse_credentials(values: Any, where: str) -> None:
    """Raises ConfigError, which does not repeat it, where a string in some values can carry a
    credential.
    """
    for key, text in _strings(values):
        if carries_credentials(text):
            raise ConfigError(
                f"{f'{where}: {key}' if key else where} holds a token, or a URL in a form that "
                "can carry a credential: a user or a password before @, or anything after ?, #, & "
                "or ;. Paths are written to the plan and to messages, where others can read them. "
                "Leave it out, and give credentials as the storage's library takes them: "
                "environment variables, or files such as ~/.aws/credentials "
                "(docs/internals/security.md)",
                kind="credential",
            )


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


def hide_credentials(text: str) -> str:
    """A message of a library without the credentials of its URLs: a store may redirect to a signed
    one.
    """
    return _TOKEN.sub(
        lambda match: f"{match['name'] or ''}[hidden]", _URL_IN_TEXT.sub(_hidden, text)
    )


def _hidden(match: re.Match[str]) -> str:
    url = match[0].rstrip(_AFTER_URL)
    if not carries_credentials(url):
        return match[0]
    shown = re.split(r"[?#;&]", url, maxsplit=1)[0]
    shown = f"{url.partition(':')[0]}://" if carries_credentials(shown) else shown
    return f"{shown}[hidden]{match[0].removeprefix(url)}"


def printable(text: str) -> str:
    """A text with its control characters written out as JSON does; line ends and tabs stay."""
    return text.translate(_CONTROLS)


def shown_message(text: str) -> str:
    """A message as standard error and logs show it: printable, and without the credentials of a
    library's URLs.
    """
    return printable(hide_credentials(text))

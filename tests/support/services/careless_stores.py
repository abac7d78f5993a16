"""Servers that speak S3's protocol and do not keep its promises: WSGI applications around that of a
good one.
"""

import io
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_CONDITION = "HTTP_IF_NONE_MATCH"
# Longer than eight creates that begin at once take to arrive.
_WRITE_SECONDS = 0.3


def ignoring(store: Application) -> Application:
    """Knows nothing of If-None-Match."""

    def answer(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        environ.pop(_CONDITION, None)
        return store(environ, respond)

    return answer


def in_sequence(store: Application) -> Application:
    """Looks whether the object exists, then writes it, and others may do so between the two."""

    def answer(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if _CONDITION in environ and not _exists(store, environ):
            del environ[_CONDITION]
            time.sleep(_WRITE_SECONDS)
        return store(environ, respond)

    return answer


def replacing(store: Application) -> Application:
    """Says that the object exists, and has replaced it."""

    def answer(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if _CONDITION in environ and _exists(store, environ):
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            without = {name: value for name, value in environ.items() if name != _CONDITION}
            _status(store, {**without, "wsgi.input": io.BytesIO(body)})
            environ["wsgi.input"] = io.BytesIO(body)
        return store(environ, respond)

    return answer


def listing_late(store: Application) -> Application:
    """Lists no object that was written in the last seconds, which are all of a test."""

    def answer(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if "list-type=2" not in environ["QUERY_STRING"]:
            return store(environ, respond)
        kept: list[Any] = []
        listed = b"".join(store(environ, lambda *given: kept.extend(given)))
        status, headers, *_ = kept
        old = re.sub(rb"<Contents>.*?</Contents>", b"", listed, flags=re.DOTALL)
        others = [(name, text) for name, text in headers if name.lower() != "content-length"]
        respond(status, [*others, ("Content-Length", str(len(old)))])
        return [old]

    return answer


def _exists(store: Application, environ: dict[str, Any]) -> bool:
    empty = {"REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0", "wsgi.input": io.BytesIO()}
    without = {name: value for name, value in environ.items() if name != _CONDITION}
    return _status(store, {**without, **empty}).startswith("200")


def _status(store: Application, environ: dict[str, Any]) -> str:
    kept: list[str] = []
    list(store(environ, lambda status, *_: kept.append(status)))
    return kept[0]

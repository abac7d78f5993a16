"""Object stores, each behind a proxy that is slow, fails, throttles, loses answers, or lists what
was there before.
"""

import http.client
import os
import random
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_OF_A_CONNECTION = (
    "connection",
    "transfer-encoding",
    "content-length",
    "keep-alive",
    "date",
    "server",
    "host",
)
_SLOW_SECONDS, _TIMEOUT_SECONDS = 0.4, 60


class _Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Weather:
    """How a store behaves: one request in some is struck, of a few at most; `requests` counts
    all.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.drawn = random.Random()
        self.listed: dict[str, _Answer] = {}
        self._lock = threading.Lock()
        self._kind: str | None = None
        self._one_in = self._left = 0

    def change(self, kind: str | None, seed: int = 0) -> None:
        """From now on the store behaves in one of the ways of `WEATHERS`, or well."""
        with self._lock:
            self.drawn = random.Random(seed)
            self._kind, self._one_in, self._left = (
                kind,
                self.drawn.choice((1, 3, 8)),
                self.drawn.randrange(1, 12),
            )

    def next(self) -> str | None:
        """What is done to the next request."""
        with self._lock:
            self.requests += 1
            if self._kind is None or self._left == 0 or self.drawn.randrange(self._one_in):
                return None
            self._left -= 1
            return self._kind


class Stores:
    """The stores of a campaign, each started when it is first used, and ended with a stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, tuple[str, Weather]] = {}

    def open(self, name: str) -> tuple[str, Weather]:
        """The bucket of a store, which this process and its launchers reach by their
        environment.
        """
        if name not in self._started:
            from tests.support.services.stores import STORES

            store = self._stack.enter_context(STORES["gcs" if name == "gs" else name]())
            weather = Weather()
            address = self._stack.enter_context(_proxied(store.endpoint, weather))
            changed = {
                key: address if value == store.endpoint else value
                for key, value in store.environment.items()
            }
            os.environ.update(changed)
            self._started[name] = store.url, weather
        return self._started[name]


@contextmanager
def _proxied(endpoint: str, weather: Weather) -> Iterator[str]:
    handler = type(
        "Handler",
        (_Handler,),
        {"store": urllib.parse.urlsplit(endpoint).netloc, "weather": weather},
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: str
    weather: Weather

    def handle(self) -> None:
        """Ends quietly where a launcher was killed."""
        with suppress(ConnectionError):
            super().handle()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.weather.next()
        lists = self.command == "GET" and (
            "list-type=" in self.path or self.path.partition("?")[0].endswith("/o")
        )
        if kind in ("fails", "throttles"):
            status = self.weather.drawn.choice((500, 503) if kind == "fails" else (429, 503))
            self._send(_Answer(status, [("Retry-After", "0"), ("Content-Length", "0")], b""))
        elif kind == "lists what was" and lists and self.path in self.weather.listed:
            self._send(self.weather.listed[self.path])
        else:
            time.sleep(_SLOW_SECONDS if kind == "is slow" else 0)
            answer = self._forward(body)
            if lists:
                self.weather.listed[self.path] = answer
            if kind == "loses answers":
                self.close_connection = True
            else:
                self._send(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _handle

    def _forward(self, body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(self.store, timeout=_TIMEOUT_SECONDS)
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _OF_A_CONNECTION
        }
        try:
            connection.request(
                self.command, self.path, body, headers | {"Content-Length": str(len(body))}
            )
            answer = connection.getresponse()
            content = answer.read()
            kept = [
                (name, value)
                for name, value in answer.getheaders()
                if name.lower() not in _OF_A_CONNECTION
            ]
            size = (
                answer.headers.get("Content-Length", "0")
                if self.command == "HEAD"
                else str(len(content))
            )
            return _Answer(answer.status, [*kept, ("Content-Length", size)], content)
        finally:
            connection.close()

    def _send(self, answer: _Answer) -> None:
        # A launcher that was killed does not wait for it.
        with suppress(OSError):
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

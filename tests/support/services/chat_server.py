"""A server of OpenAI's chat completions at wire level, which fails on request."""

import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

_DOC = re.compile(r"^\[(\d+|[A-Z])\] (.*)$", re.MULTILINE)
_QUERY = re.compile(r"^Search Query: (.*)\.$", re.MULTILINE)


class Fault(NamedTuple):
    """What one request gets in place of its answer.

    Attributes:
        status: of HTTP.
        body: JSON, or bytes as they are.
        headers: beside its length.
        wait_seconds: before it answers as usual.
        cut: only this much of the answer arrives.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = {}
    wait_seconds: float = 0.0
    cut: int | None = None


GONE = Fault(cut=0)
BUSY = Fault(429, {"error": {"message": "slow down", "code": "rate_limit"}}, {"Retry-After": "0"})
NONSENSE = Fault(body=b"<html>hello</html>")


class Asked(NamedTuple):
    """A request: its JSON, its headers, and when it came."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    seconds: float

    @property
    def prompt(self) -> str:
        """The user's message."""
        return str(self.body["messages"][-1]["content"])


class ChatServer(ThreadingHTTPServer):
    """Orders the docs of a default prompt by the words that they share with the query.

    Attributes:
        asked: the requests.
        faults: of the next requests, one each.
        answers: texts of answers to the next requests that have no fault, one each.
        fingerprint: the version that it tells.
        most_at_once: the most requests that it had at a time.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.faults: deque[Fault] = deque()
        self.answers: deque[str] = deque()
        self.fingerprint = "fp_1"
        self.most_at_once = self.at_once = 0
        self.lock = Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def elsewhere(self) -> str:
        """The same, by an address that could be another machine's."""
        return f"http://0.0.0.0:{self.server_port}/v1"


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Runs one in a thread."""
    with ChatServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def best_first(query: str, docs: Sequence[str]) -> list[int]:
    """The places of docs by the distinct words that they share with a query, then by their text."""
    words = {*query.split()}
    return sorted(range(len(docs)), key=lambda doc: (-len(words & {*docs[doc].split()}), docs[doc]))


def _answer(prompt: str) -> str:
    names, docs = zip(*_DOC.findall(prompt), strict=True)
    query = _QUERY.search(prompt)
    assert query is not None
    return " > ".join(f"[{names[place]}]" for place in best_first(query[1], docs))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = Asked(body, dict(self.headers), time.monotonic())
        with server.lock:
            server.asked.append(asked)
            fault = server.faults.popleft() if server.faults else Fault()
            usual = fault.body is None and fault.status == 200
            text = server.answers.popleft() if usual and server.answers else None
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        time.sleep(fault.wait_seconds)
        content = fault.body
        if usual:
            text = _answer(asked.prompt) if text is None else text
            content = {
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
                "usage": {"prompt_tokens": len(asked.prompt.split()), "completion_tokens": 7},
                "system_fingerprint": server.fingerprint,
            }
        with server.lock:
            server.at_once -= 1
        self._send(fault, content if isinstance(content, bytes) else json.dumps(content).encode())

    def _send(self, fault: Fault, content: bytes) -> None:
        if fault.cut == 0:
            self.close_connection = True
            return
        self.send_response(fault.status)
        for name, value in {**fault.headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: fault.cut])
        self.close_connection = fault.cut is not None

    def log_message(self, *_: Any) -> None:
        pass

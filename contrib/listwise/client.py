"""A server of OpenAI's chat completions, asked by all shards of a process."""

import ipaddress
import os
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib.util import find_spec
from threading import BoundedSemaphore, Lock
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit
from weakref import finalize

from pydantic import BaseModel, Field, TypeAdapter

from beamrank.errors import BeamrankError, LeftOpenError, PreflightError
from beamrank.storage.urls import shown_message
from contrib.listwise.prompt import Messages

MOST_TRIES = 6
MOST_SECONDS = 600.0
MOST_ANSWER_BYTES = 4 << 20
_FIRST_WAIT_SECONDS = 0.5
_MOST_MESSAGE = 200
_AGAIN = {408, 409, 429}
_SPENT = {"insufficient_quota", "quota_exceeded", "billing_hard_limit_reached"}
# Newer models refuse these: the other name, or nothing in place of it.
_REPLACED = {"max_tokens": "max_completion_tokens", "temperature": ""}
_HINTS = {
    401: "check the key",
    403: "check the key",
    404: "check `endpoint` and `model`",
}
_WORD, _SHINGLE_WORDS = re.compile(r"\w+"), 5
_ERROR = TypeAdapter(dict[str, Any])
_Tokens = Annotated[int, Field(ge=0)]


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message


class _Usage(BaseModel):
    prompt_tokens: _Tokens = 0
    completion_tokens: _Tokens = 0


class _Completion(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None
    system_fingerprint: str | None = None


class Reply(NamedTuple):
    """An answer, with the tokens that the server counts and its version."""

    text: str
    prompt_tokens: int = 0
    answer_tokens: int = 0
    fingerprint: str = ""


class Access(NamedTuple):
    """How a server is asked.

    Attributes:
        endpoint: its URL, up to `/chat/completions`.
        key_variable: the environment variable that holds the key; empty for none.
        requests_at_once: of this process.
        requests_per_minute: of this process; None for any number.
        timeout_seconds: for an answer.
    """

    endpoint: str
    key_variable: str = ""
    requests_at_once: int = 8
    requests_per_minute: int | None = None
    timeout_seconds: float = 120.0

    @property
    def host(self) -> str:
        """The server's."""
        return urlsplit(self.endpoint).hostname or ""

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class _Again(Exception):
    """The request may succeed later, for `of_all` not before some seconds."""

    def __init__(self, reason: str, wait_seconds: float = 0.0, *, of_all: bool = False) -> None:
        super().__init__(reason)
        self.wait_seconds, self.of_all = wait_seconds, of_all


class Server:
    """The server, with what all threads of this process share.

    Raises:
        PreflightError: the key's variable is not set here, or httpx is not installed.
    """

    def __init__(self, access: Access, first_wait_seconds: float = _FIRST_WAIT_SECONDS) -> None:
        if find_spec("httpx") is None:
            raise PreflightError(
                "`endpoint` needs the package httpx: pip install 'beamrank[listwise]', on the "
                "workers too"
            )
        import httpx

        self.access = access
        self._key = os.environ.get(access.key_variable, "") if access.key_variable else ""
        if access.key_variable and not self._key:
            raise PreflightError(
                f"the key of {access.host} is read from the environment variable "
                f"{access.key_variable}, which is not set in this process: set it where workers "
                "run (docs/guide/listwise.md tells how for each runner)"
            )
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=access.timeout_seconds,
            # No proxy gets what goes to this machine.
            trust_env=not access.is_here,
            limits=httpx.Limits(max_connections=access.requests_at_once),
        )
        finalize(self, self._client.close)
        self._url = access.endpoint.rstrip("/").removesuffix("/chat/completions")
        self._slots, self._lock = BoundedSemaphore(access.requests_at_once), Lock()
        self._pause = 60.0 / access.requests_per_minute if access.requests_per_minute else 0.0
        self._next = self._not_before = time.monotonic()
        self._first_wait = first_wait_seconds
        self._refused = set[str]()

    def ask(self, model: str, messages: Messages, max_tokens: int) -> Reply:
        """The answer to a prompt.

        Raises:
            LeftOpenError: the server did not answer, or the quota is spent.
            BeamrankError: it refused the request.
        """
        request = {
            "model": model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        first = 0.0
        for tries in range(1, MOST_TRIES + 1):
            try:
                with self._slots:
                    self._await_turn()
                    return self._post(request)
            except _Again as again:
                now = time.monotonic()
                first = first or now
                wait = max(again.wait_seconds, self._first_wait * 2 ** (tries - 1))
                if tries == MOST_TRIES or now + wait - first > MOST_SECONDS:
                    raise LeftOpenError(
                        f"{self.access.host} {again}; it was asked {tries} times in "
                        f"{now - first:.0f} s"
                    ) from again
                if again.of_all:
                    self._not_before = max(self._not_before, now + wait)
                else:
                    time.sleep(wait)
        raise AssertionError

    def _await_turn(self) -> None:
        """Waits for this process's pace, and while the server wants no requests."""
        with self._lock:
            turn = max(time.monotonic(), self._next)
            self._next = turn + self._pause
        while (wait := max(turn, self._not_before) - time.monotonic()) > 0:
            time.sleep(wait)

    def _post(self, request: Mapping[str, Any]) -> Reply:
        import httpx

        names = {name: _REPLACED[name] if name in self._refused else name for name in request}
        body = {names[name]: value for name, value in request.items() if names[name]}
        url, content = f"{self._url}/chat/completions", b""
        try:
            with self._client.stream("POST", url, json=body) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > MOST_ANSWER_BYTES:
                        raise BeamrankError(
                            f"{self.access.host} answers with more than {MOST_ANSWER_BYTES >> 20} "
                            "MiB, which is no chat completion: check `endpoint`"
                        )
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _Again(f"does not answer ({type(error).__name__})") from None
        status, failure = response.status_code, _failure(content)
        codes = {str(failure.get(name)) for name in ("code", "type")}
        message = self._shown(str(failure.get("message") or ""), request["messages"])
        said = f"answers with HTTP {status}{message and ': '}{message}"
        if status == httpx.codes.OK:
            return _reply(content)
        if codes & _SPENT:
            raise LeftOpenError(f"{self.access.host} {said}")
        if status in _AGAIN or status >= httpx.codes.INTERNAL_SERVER_ERROR:
            wait = _wait_seconds(response.headers.get("Retry-After", ""))
            raise _Again(said, wait, of_all=status == httpx.codes.TOO_MANY_REQUESTS)
        name = str(failure.get("param"))
        if name in _REPLACED and any(code.startswith("unsupported") for code in codes):
            self._refused.add(name)
            raise _Again(said)
        hint = (
            "redirects are not followed: give the address itself"
            if response.is_redirect
            else _HINTS.get(
                status,
                "the request cannot be answered: check `model`, or lower "
                "`window` or `doc_words` where it is too long",
            )
        )
        raise BeamrankError(f"{self.access.host} {said}; {hint}. Answers so far are kept")

    def _shown(self, message: str, messages: Messages) -> str:
        """The server's message, cut, without credentials; nothing of one that repeats the
        prompt.
        """
        prompt = " ".join(_WORD.findall(" ".join(each["content"] for each in messages)))
        words = _WORD.findall(message)
        starts = range(max(1, len(words) - _SHINGLE_WORDS + 1))
        if any(" ".join(words[start : start + _SHINGLE_WORDS]) in prompt for start in starts):
            return ""
        hidden = message.replace(self._key, "[hidden]") if self._key else message
        return shown_message(" ".join(hidden.split())[:_MOST_MESSAGE])


@lru_cache(maxsize=4)
def server_of(access: Access) -> Server:
    """This process's, for all its shards."""
    return Server(access)


def _reply(content: bytes) -> Reply:
    try:
        completion = _Completion.model_validate_json(content)
    except ValueError:
        raise _Again("answers with something that is no chat completion") from None
    usage = completion.usage or _Usage()
    return Reply(
        completion.choices[0].message.content or "",
        usage.prompt_tokens,
        usage.completion_tokens,
        completion.system_fingerprint or "",
    )


def _failure(content: bytes) -> Mapping[str, Any]:
    """What a server says of a request that it does not answer: its `message`, `code`, `type`."""
    try:
        body = _ERROR.validate_json(content)
    except ValueError:
        return {}
    inner = body.get("error", body)
    return inner if isinstance(inner, dict) else {"message": inner}


def _wait_seconds(after: str) -> float:
    """`Retry-After`: seconds, or a date."""
    if after.strip().isdecimal():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0

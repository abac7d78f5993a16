"""A server that is asked, at wire level."""

import gzip
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest

from beamrank.errors import BeamrankError, LeftOpenError, PreflightError
from contrib.listwise import client
from contrib.listwise.client import MOST_ANSWER_BYTES, MOST_TRIES, Access, Server
from contrib.listwise.prompt import RANK_ZEPHYR, Window
from tests.support.services.chat_server import (
    BUSY,
    GONE,
    NONSENSE,
    ChatServer,
    Fault,
    chat_server,
)

_DOCS = ["basil", "amber and secretive cedar trees grow", "amber"]
_MESSAGES = Window("amber cedar", _DOCS).messages(RANK_ZEPHYR, 300)
_KEY = "sk-proj-0a1b2c3d4e5f6g7h8i9j"


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


@pytest.fixture
def ask_of(chat) -> Callable[..., Server]:
    """Makes clients of the server."""
    return lambda **access: Server(Access(chat.endpoint, **access), first_wait_seconds=0.001)


def _ask(server: Server) -> str:
    return server.ask("tiny", _MESSAGES, 50).text


def _as_date(seconds: int) -> str:
    return formatdate(time.time() + seconds, usegmt=True)


def _failure(message: str = "no", **fields: str) -> dict[str, dict[str, str]]:
    return {"error": {"message": message, **fields}}


def test_request_and_answer_are_those_of_chat_completions(chat, ask_of, monkeypatch):
    monkeypatch.setenv("CHAT_KEY", _KEY)
    # What goes to this machine goes through no proxy.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    reply = ask_of(key_variable="CHAT_KEY").ask("tiny", _MESSAGES, 50)
    assert reply == ("[2] > [3] > [1]", len(_MESSAGES[1]["content"].split()), 7, "fp_1")
    (asked,) = chat.asked
    assert asked.body == {
        "model": "tiny",
        "messages": _MESSAGES,
        "temperature": 0,
        "max_tokens": 50,
    }
    assert asked.headers["Authorization"] == f"Bearer {_KEY}"
    _ask(ask_of())
    assert "Authorization" not in chat.asked[1].headers


@pytest.mark.parametrize(
    "fault",
    [
        BUSY,
        GONE,
        NONSENSE,
        Fault(cut=40),
        Fault(body={"choices": []}),
        Fault(body={"error": "overloaded"}),
        Fault(503, {"error": None}),
        Fault(503, {"error": {"message": [], "code": {}, "type": [], "param": {}}}),
        Fault(503, [[]]),
        *(Fault(status, _failure()) for status in (408, 409, 500, 503, 529)),
    ],
)
def test_what_may_succeed_later_is_asked_again(chat, ask_of, fault):
    chat.faults.extend([fault, fault])
    assert _ask(ask_of()) == "[2] > [3] > [1]"
    assert len(chat.asked) == 3


def test_server_that_is_gone_leaves_the_shard_open_after_six_tries(chat, ask_of):
    chat.faults.extend([GONE] * 9)
    with pytest.raises(LeftOpenError, match=rf"127\.0\.0\.1 .* {MOST_TRIES} times"):
        _ask(ask_of())
    assert len(chat.asked) == MOST_TRIES


@pytest.mark.parametrize("status", [200, 503])
def test_answer_of_any_length_is_not_read_to_its_end(chat, ask_of, status):
    """It is compressed: a hundredth of its length arrives."""
    body = gzip.compress(b" " * (MOST_ANSWER_BYTES + 1))
    chat.faults.extend([Fault(status, body, {"Content-Encoding": "gzip"})] * 2)
    with pytest.raises(BeamrankError, match=r"127\.0\.0\.1 .* 4 MiB"):
        _ask(ask_of())
    assert len(chat.asked) == 1


def test_slow_server_is_asked_again(chat, ask_of):
    chat.faults.append(Fault(wait_seconds=1.5))
    assert _ask(ask_of(timeout_seconds=0.5)) == "[2] > [3] > [1]"


@pytest.mark.parametrize("written", [str, _as_date])
def test_server_that_wants_to_be_asked_after_ten_minutes_leaves_the_shard_open(
    chat, ask_of, written
):
    chat.faults.append(BUSY._replace(headers={"Retry-After": written(3600)}))
    with pytest.raises(LeftOpenError, match="429: slow down"):
        _ask(ask_of())
    assert len(chat.asked) == 1


@pytest.mark.parametrize("written", [str, _as_date])
def test_one_busy_answer_slows_all_requests_of_the_process(chat, ask_of, written):
    server = ask_of(requests_at_once=4)
    chat.faults.append(BUSY._replace(headers={"Retry-After": written(2)}))
    chat.faults.extend([Fault(wait_seconds=0.2)] * 3)
    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(lambda _: _ask(server), range(8))} == {"[2] > [3] > [1]"}
    first, *others = [asked.seconds for asked in chat.asked]
    # Three were on their way.
    assert sorted(others)[3] - first > 0.5


def test_requests_keep_their_pace_and_number(chat, ask_of):
    server = ask_of(requests_at_once=2, requests_per_minute=600)
    chat.faults.extend([Fault(wait_seconds=0.05)] * 6)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: _ask(server), range(6)))
    assert chat.most_at_once <= 2
    times = [asked.seconds for asked in chat.asked]
    assert times[-1] - times[0] > 0.4


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_hard_limit_reached"])
def test_spent_quota_is_not_asked_again(chat, ask_of, code):
    chat.faults.append(Fault(429, _failure("pay", type=code, code="429")))
    with pytest.raises(LeftOpenError, match="pay"):
        _ask(ask_of())
    assert len(chat.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_refused_request_is_an_error_and_is_not_asked_again(chat, ask_of, status):
    chat.faults.append(Fault(status, _failure("not so")))
    with pytest.raises(BeamrankError, match=f"{status}: not so") as error:
        _ask(ask_of())
    assert error.value.exit_code == 1
    assert len(chat.asked) == 1


def test_redirect_is_not_followed(chat, ask_of):
    with chat_server() as other:
        place = f"{other.endpoint}/chat/completions"
        chat.faults.append(Fault(307, {}, {"Location": place}))
        with pytest.raises(BeamrankError, match="307"):
            _ask(ask_of())
        assert other.asked == []


def test_parameters_that_a_model_refuses_have_their_newer_names(chat, ask_of):
    for name in ("max_tokens", "temperature"):
        chat.faults.append(Fault(400, _failure(param=name, code="unsupported_value")))
    server = ask_of()
    assert _ask(server) == _ask(server) == "[2] > [3] > [1]"
    assert [asked.body.keys() - {"model", "messages"} for asked in chat.asked[2:]] == [
        {"max_completion_tokens"}
    ] * 2


@pytest.mark.parametrize(
    "message",
    [
        f"key {_KEY} is wrong",
        "see https://user:pass@host/path?token=1",
        "the input 'amber and secretive cedar trees grow' is too long",
        "x" * 5000,
    ],
)
@pytest.mark.parametrize("status", [400, 503])
def test_messages_hold_no_key_no_credential_and_no_doc(
    chat, ask_of, monkeypatch, caplog, message, status
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CHAT_KEY", _KEY)
    chat.faults.extend([Fault(status, _failure(message))] * MOST_TRIES)
    with pytest.raises((BeamrankError, LeftOpenError)) as error:
        _ask(ask_of(key_variable="CHAT_KEY"))
    logged = caplog.text + str(error.value)
    assert not [text for text in (_KEY, "pass@", "secretive", "x" * 300) if text in logged]


def test_missing_key_names_its_variable_and_the_host(chat, ask_of, monkeypatch):
    monkeypatch.delenv("CHAT_KEY", raising=False)
    with pytest.raises(PreflightError, match=r"127\.0\.0\.1 .*CHAT_KEY"):
        ask_of(key_variable="CHAT_KEY")


@pytest.mark.parametrize(
    ("endpoint", "is_here"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.9:8000", True),
        ("http://[::1]:8000", True),
        ("https://api.openai.com/v1", False),
        ("http://127.0.0.1.example.org", False),
        ("http://0.0.0.0:8000", False),
    ],
)
def test_this_machine_is_known_by_its_addresses(endpoint, is_here):
    assert Access(endpoint).is_here is is_here


def test_a_process_has_one_server_for_all_shards(chat):
    access = Access(chat.endpoint)
    assert client.server_of(access) is client.server_of(Access(chat.endpoint))

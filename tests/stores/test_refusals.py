"""Stores that refuse every request: errors name the URL and the likely cause, and never damage."""

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from gcsfs.retry import HttpError

from beamrank.commit.plan import read_plan
from beamrank.config.load import load_config
from beamrank.errors import BeamrankError, DataError, PreflightError, TemporaryError, exit_code
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage import files as storage
from beamrank.storage import stores
from beamrank.storage.stores import UnreachableError, check_refusal
from beamrank.storage.streams import open_stream
from models.checkpoints.checkpoint import resolve_checkpoint
from pipelines.plan.make_plan import check_writable
from tests.support.tiers import slow_but

# Of a code of S3: the status, the headers, and what is said of it.
ANSWERS: dict[str, tuple[int, dict[str, str], str]] = {
    "ExpiredToken": (400, {}, "check the credentials"),
    "InvalidAccessKeyId": (403, {}, "check the credentials"),
    "AuthorizationHeaderMalformed": (
        400,
        {"x-amz-bucket-region": "eu-north-1"},
        "AWS_REGION=eu-north-1",
    ),
    "AccessDenied": (403, {"x-amz-bucket-region": "eu-north-1"}, "the permission to list"),
}


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Starts a store that answers every request, or those of one method, so; others succeed and
    give nothing.
    """
    servers = []

    def start(status: int, code: str, headers: dict[str, str], only: str = "") -> None:
        class Refusing(BaseHTTPRequestHandler):
            def answer(self) -> None:
                refused = not only or self.command == only
                body = (
                    f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                    if refused
                    else b""
                )
                self.send_response(status if refused else 404)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET = do_PUT = do_POST = answer

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        for name in (
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_EC2_METADATA_DISABLED",
            "NO_GCE_CHECK",
        ):
            monkeypatch.setenv(name, "true")
        for protocol in ("s3", "gs"):
            fsspec.get_filesystem_class(protocol).clear_instance_cache()

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("code", slow_but(("ExpiredToken",), ANSWERS))
def test_refusal_names_its_likely_cause(refusing, code):
    status, headers, words = ANSWERS[code]
    refusing(status, code, headers)
    url = "s3://bucket/a.run"
    # The answer to the first has no body.
    for use in (
        storage.size_bytes,
        storage.read_bytes,
        storage.sizes_bytes,
        lambda url: storage.publish(url, b"x"),
    ):
        with pytest.raises(UnreachableError, match=rf"^{url} .*{words}"):
            use(url)
    with pytest.raises(DataError, match=words) as raised, open_stream(url) as file:
        file.read()
    assert "damaged" not in str(raised.value)
    with pytest.raises(PreflightError, match="s3://bucket/out: "):
        check_writable("s3://bucket/out")


@pytest.mark.slow
def test_store_without_conditional_puts_is_named(refusing):
    refusing(501, "NotImplemented", {}, only="PUT")
    with pytest.raises(PreflightError, match=r"s3://bucket/out/.*If-None-Match"):
        check_writable("s3://bucket/out")


def test_refusal_by_google_names_its_likely_cause(refusing, monkeypatch):
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    refusing(403, "Forbidden", {})
    for use in (storage.size_bytes, storage.read_bytes, storage.sizes_bytes):
        with pytest.raises(UnreachableError, match=r"^gs://bucket/a\.run .*credentials"):
            use("gs://bucket/a.run")


def _answer(status: int) -> ClientError:
    about = {"HTTPStatusCode": status, "HTTPHeaders": {}}
    return ClientError({"Error": {"Code": "x"}, "ResponseMetadata": about}, "PutObject")


@pytest.mark.parametrize(
    ("error", "unanswered"),
    [
        (EndpointConnectionError(endpoint_url="http://store"), True),
        (ConnectionResetError("reset"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (_answer(503), True),
        (HttpError({"code": 429, "message": "slow down"}), True),
        (_answer(501), False),
        (_answer(404), False),
        (HttpError({"code": 412, "message": "exists"}), False),
        (FileNotFoundError("missing"), False),
        (ValueError("no bucket"), False),
    ],
    ids=str,
)
def test_store_that_does_not_answer_is_told_from_one_that_refuses(error, unanswered):
    """Also where another error of a library hides it; but not where a caller handles it."""
    assert stores.is_unanswered(error) == unanswered
    hidden, missing = OSError("hidden"), FileNotFoundError("missing")
    hidden.__cause__ = missing.__context__ = error
    assert stores.is_unanswered(hidden) == unanswered
    assert not stores.is_unanswered(missing)


@pytest.mark.parametrize(
    "use",
    [
        lambda url: load_config(url, []),
        lambda url: read_topics(TopicsConfig(path=url, format="tsv")),
        lambda url: read_plan(url),
        lambda url: resolve_checkpoint(url, "mono"),
        lambda url: check_writable(url),
    ],
    ids=["configuration", "topics", "plan", "checkpoint", "output"],
)
def test_store_that_is_away_may_answer_another_attempt(use):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/topics.tsv"
        with pytest.raises((BeamrankError, OSError), match=url) as raised:
            use(url)
    assert exit_code(raised.value) == TemporaryError.exit_code == 75


def test_store_that_refuses_will_refuse_another_attempt(refusing):
    refusing(403, "AccessDenied", {})
    with pytest.raises(UnreachableError, match="s3://bucket/a") as raised:
        storage.read_bytes("s3://bucket/a")
    assert exit_code(raised.value) == PreflightError.exit_code


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_error_that_says_why_gets_no_other_cause(scheme):
    response = {
        "Error": {"Code": "KeyTooLongError"},
        "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {}},
    }
    s3, gs = (
        ClientError(response, "PutObject"),
        HttpError({"code": 400, "message": "Invalid bucket name"}),
    )
    check_refusal(f"{scheme}://bucket/a", s3 if scheme == "s3" else gs)

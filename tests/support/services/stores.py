"""Object stores on this machine, as servers: what beamrank sends crosses a real wire and is written
down.
"""

import base64
import io
import json
import logging
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import HTTPServer
from typing import Any

import pytest

from tests.support.services import environments

BUCKET = "bucket"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIATESTSONLY",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_GCE_CHECK": "true",
    # gcsfs asks by gRPC of what kind a bucket is, and no emulator answers.
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
}


@dataclass
class Store:
    """A store that runs.

    Attributes:
        url: its one bucket.
        endpoint: where it listens.
        environment: what a process needs to reach it.
        requests: `METHOD path` of every request so far; empty where the server does not tell.
        before: is called before a request is done, with that and with the address of who asks (S3
            only).
    """

    url: str
    endpoint: str
    environment: dict[str, str]
    requests: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _request, _from: None

    def sent(self, *fragments: str) -> list[str]:
        """The requests that hold all of some texts."""
        return [
            request
            for request in self.requests
            if all(fragment in request for fragment in fragments)
        ]

    def reads(self, *fragments: str) -> int:
        """How many requests gave content, where the address holds all of some texts."""
        sent = self.sent("GET ", *fragments)
        return sum(
            "alt=media" in each if self.url.startswith("gs") else "list-type" not in each
            for each in sent
        )


def _store(protocol: str, endpoint: str, requests: list[str]) -> Store:
    where = "AWS_ENDPOINT_URL" if protocol == "s3" else "STORAGE_EMULATOR_HOST"
    return Store(f"{protocol}://{BUCKET}", endpoint, {**_ENVIRONMENT, where: endpoint}, requests)


@contextmanager
def s3(
    address: str = "127.0.0.1", around: Callable[[Any], Any] = lambda store: store
) -> Iterator[Store]:
    """moto's server, which enforces If-None-Match. It is asked one thing at a time: a store decides
    who was first.

    Args:
        address: where it listens.
        around: one of `careless_stores`, which is put before it.
    """
    moto = pytest.importorskip("moto.server", reason="the S3 store is moto's: pip install '.[dev]'")
    pytest.importorskip("s3fs", reason="s3:// is read by s3fs: pip install '.[s3]'")
    from werkzeug.serving import make_server

    requests: list[str] = []
    store = _store("s3", "", requests)
    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    turn = threading.Lock()

    def told(environ: dict[str, Any], respond: Callable[..., Any]) -> Any:
        requests.append(
            f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        )
        store.before(requests[-1], environ["REMOTE_ADDR"])
        with turn:
            return application(environ, respond)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(address, 0, around(told), threaded=True)
    store.endpoint = store.environment["AWS_ENDPOINT_URL"] = (
        f"http://{address}:{server.server_port}"
    )
    with _serving(server):
        _ask("PUT", f"{store.endpoint}/{BUCKET}")
        yield store


@contextmanager
def gcs(heeds_conditions: bool = True) -> Iterator[Store]:
    """gcp-storage-emulator. It ignores ifGenerationMatch, so its storage is told to heed it, as
    Google's does; or not.
    """
    emulator: Any = pytest.importorskip(
        "gcp_storage_emulator.server",
        reason="the GCS store is gcp-storage-emulator: pip install '.[dev]'",
    )
    from gcp_storage_emulator.handlers.buckets import create_bucket
    from gcp_storage_emulator.storage import Storage

    requests: list[str] = []

    class PreconditionFailed(Exception):
        """There is an object already."""

    class ConditionalStorage(Storage):
        create_only = False

        def create_file(self, bucket_name: str, file_name: str, *args: Any, **options: Any) -> None:
            if self.create_only and file_name in self.objects.get(bucket_name, {}):
                raise PreconditionFailed(file_name)
            super().create_file(bucket_name, file_name, *args, **options)

    request_handler: Any = emulator.RequestHandler

    class Handler(request_handler):
        rfile: io.BufferedIOBase

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except PreconditionFailed as error:
                self._answer(412, {"error": {"code": 412, "message": str(error)}})

        def do_DELETE(self) -> None:
            if "upload_id=" in self.path:
                # The end of an upload that was begun, of which the emulator knows nothing.
                self._answer(499, {})
            else:
                super().do_DELETE()

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def parse_request(self) -> bool:
            parsed = bool(super().parse_request())
            if parsed:
                requests.append(f"{self.command} {self.path}")
                self.storage.create_only = heeds_conditions and "ifGenerationMatch=0" in self.path
                if "uploadType=multipart" in self.path:
                    self._end_lines_with_both()
            return parsed

        def _end_lines_with_both(self) -> None:
            # gcsfs ends lines with \n alone, and the emulator's parser takes a \r that ends a file
            # for part of that.
            body = self.rfile.read(int(self.headers["Content-Length"])).replace(
                b"\n--==0==", b"\r\n--==0=="
            )
            self.headers.replace_header("Content-Length", str(len(body)))
            self.rfile = io.BytesIO(body)

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    for name in ("api.object", "gcp_storage_emulator.storage", "gcp_storage_emulator.server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    storage = ConditionalStorage(use_memory_fs=True)
    create_bucket(BUCKET, storage)
    server = HTTPServer(("127.0.0.1", 0), partial(Handler, storage))
    with _serving(server):
        yield _store("gs", f"http://127.0.0.1:{server.server_port}", requests)


@contextmanager
def fake_gcs_server() -> Iterator[Store]:
    """fsouza's fake-gcs-server, which honours ifGenerationMatch itself."""
    program = str(environments.fake_gcs_server())
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    flags = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command = [program, *flags, "-external-url", endpoint, "-log-level", "error"]
    with subprocess.Popen(command, env={**os.environ}) as process:
        try:
            environments.wait_for(lambda: _ask("GET", f"{endpoint}/storage/v1/b"))
            body = json.dumps({"name": BUCKET}).encode()
            _ask("POST", f"{endpoint}/storage/v1/b", body)
            yield _store("gs", endpoint, [])
        finally:
            process.terminate()


@contextmanager
def azure() -> Iterator[Store]:
    """Azure's own emulator, Azurite."""
    blobs: Any = pytest.importorskip(
        "azure.storage.blob", reason="az:// is read by adlfs: pip install '.[azure]'"
    )
    program, port = str(environments.azurite()), _free_port()
    endpoint = f"http://127.0.0.1:{port}/tests"
    # The library asks for a version of the protocol that it does not know.
    flags = ["--blobPort", str(port), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    command = [program, *flags, "--skipApiVersionCheck"]
    key = base64.b64encode(b"a key of the tests").decode()
    account = f"AccountName=tests;AccountKey={key};BlobEndpoint={endpoint}"
    environment = {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{account}"}
    accounts = {"AZURITE_ACCOUNTS": f"tests:{key}"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env={**os.environ, **accounts}, stdout=quiet) as process:
        try:
            environments.wait_for(lambda: _answers(port))
            connection = environment["AZURE_STORAGE_CONNECTION_STRING"]
            with blobs.BlobServiceClient.from_connection_string(connection) as client:
                client.create_container(BUCKET)
            yield Store(f"az://{BUCKET}", endpoint, environment)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {
    "s3": s3,
    "gcs": gcs,
    "fake-gcs-server": fake_gcs_server,
    "azure": azure,
}


@contextmanager
def _serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _ask(method: str, url: str, body: bytes | None = None) -> None:
    # A signature's form, of which moto reads the region alone.
    signature = "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request"
    headers = {"Authorization": signature, "Content-Type": "application/json"}
    urllib.request.urlopen(
        urllib.request.Request(url, body, headers, method=method), timeout=10
    ).close()

"""The Dataflow service and its bucket as far as a submission sees them: HTTP on localhost, and no
machine behind it.
"""

import base64
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import EmbeddedPythonEnvironment
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

GCP = "apache-beam[gcp] is not installed: pip install '.[gcp]'"
FLAGS = (
    "--project=some-project",
    "--region=europe-west4",
    "--temp_location=gs://staging/tmp",
    "--no_auth",
)
_JOBS = re.compile(
    r"/v1b3/projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/jobs(?P<rest>/.*)?$"
)
# JOB_STATE_CANCELLED; the client writes the states of its requests as numbers.
_CANCELLED = 5


@dataclass
class Service:
    """What was asked of the service. A job is done as soon as it is taken, unless `state` says
    otherwise.

    With `works`, the staged pipeline is run by FnApiRunner first: all that a worker would do, from
    the staged bytes.
    """

    url: str = ""
    state: str = "JOB_STATE_DONE"
    works: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)

    @property
    def flags(self) -> tuple[str, ...]:
        """The Beam flags that lead here."""
        return (*FLAGS, f"--dataflow_endpoint={self.url}")

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        """Takes a job."""
        self.requests.append(job)
        if self.works:
            run_staged(self.pipeline(job))
        return self.answer(f"job-{len(self.requests)}", job["name"], job["clientRequestId"])

    def answer(self, job_id: str, name: str = "", request_id: str = "") -> dict[str, Any]:
        """What the service says of a job."""
        state = "JOB_STATE_CANCELLED" if job_id in self.cancelled else self.state
        return {"id": job_id, "name": name, "clientRequestId": request_id, "currentState": state}

    def pipeline(self, job: dict[str, Any]) -> beam_runner_api_pb2.Pipeline:
        """The pipeline that a job's request points to."""
        url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
        return beam_runner_api_pb2.Pipeline.FromString(self.objects[url])


def run_staged(pipeline: beam_runner_api_pb2.Pipeline) -> None:
    """Does in this process what workers would do."""
    for environment in pipeline.components.environments.values():
        environment.urn, environment.payload = (
            EmbeddedPythonEnvironment.default().to_runner_api(None).urn,
            b"",
        )
        del environment.dependencies[:]
    FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path).path
        if jobs := _JOBS.match(path):
            rest = jobs["rest"] or ""
            self._answer(
                200, {} if rest.endswith("/messages") else self.service.answer(rest.strip("/"))
            )
        elif re.fullmatch(r"/storage/v1/b/[^/]+", path):
            self._answer(200, {"name": path.rpartition("/")[2]})
        else:
            self._answer(404, {"error": {"code": 404, "message": "no such object"}})

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        body = self._body()
        if _JOBS.match(path):
            self._answer(200, self.service.create(json.loads(body)))
            return
        bucket = path.split("/")[5]
        name = urllib.parse.parse_qs(query).get("name") or [json.loads(body)["name"]]
        url = urllib.parse.quote(f"gs://{bucket}/{name[0]}", safe="")
        self._answer(200, {}, location=f"{self.service.url}/session?object={url}")

    def do_PUT(self) -> None:
        path, _, query = self.path.partition("?")
        body = self._body()
        if jobs := _JOBS.match(path):
            job_id = jobs["rest"].strip("/")
            if json.loads(body)["requestedState"] == _CANCELLED:
                self.service.cancelled.append(job_id)
            self._answer(200, self.service.answer(job_id))
            return
        url = urllib.parse.parse_qs(query)["object"][0]
        self.service.objects[url] = body
        import google_crc32c

        checksum = base64.b64encode(google_crc32c.Checksum(body).digest()).decode()
        self._answer(200, {"name": url, "size": str(len(body)), "crc32c": checksum})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, code: int, value: dict[str, Any], location: str | None = None) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps standard error to itself."""


@contextmanager
def serving() -> Iterator[Service]:
    """A service for as long as it is needed."""
    service = Service()
    handler = type("Handler", (_Handler,), {"service": service})
    with ThreadingHTTPServer(("localhost", 0), handler) as server:
        service.url = f"http://localhost:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()


class BucketFileSystem(DirFileSystem):
    """bucket://NAME/PATH: a folder of this machine by a URL that this machine alone does not
    own.
    """

    protocol = "bucket"
    root: Path
    turn: ClassVar = threading.Lock()

    def __init__(self, **options: Any) -> None:
        super().__init__(path=str(self.root), fs=LocalFileSystem(auto_mkdir=True), **options)

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        """One at a time: fsspec looks whether a file exists, and then writes it."""
        with self.turn:
            super().pipe_file(path, value, **options)

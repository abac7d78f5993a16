"""A hub on loopback, to rehearse a publication: what huggingface_hub and `hf upload` ask of one
that needs a token.

It speaks the hub's wire protocol for models and datasets. Files go through git, since it has no LFS
or Xet.
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_" + "x" * 34
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
_API = re.compile(
    r"/api/(models|datasets)/(?P<name>[^/]+/[^/]+)(/(?P<call>\w+)/(?P<revision>[^/]+).*)?"
)
_FILE = re.compile(r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


class Hub(ThreadingHTTPServer):
    """Repositories by `org/name`, each with its files; `requests` are the paths that were asked
    for.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []

    def environment(self, cache: Path, token: str | None = TOKEN) -> dict[str, str]:
        """The variables of a process that uses this hub, and keeps what it gets in a folder."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        given = {} if token is None else {"HF_TOKEN": token}
        return (
            own
            | given
            | {"HF_ENDPOINT": f"http://127.0.0.1:{self.server_port}", "HF_HOME": str(cache)}
        )

    def add(self, name: str, folder: Path) -> None:
        """Makes a repository of a folder's files."""
        files = (path for path in folder.rglob("*") if path.is_file())
        self.repositories[name] = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in files
        }

    def upload(self, name: str, folder: Path, cache: Path, *options: str) -> None:
        """`hf upload`, as a user runs it."""
        command = [str(Path(sys.executable).parent / "hf"), "upload", name, str(folder), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment(cache), check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        self._answer(b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(
                b"{}",
                401,
                {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Invalid credentials"},
            )
        if path == "/api/validate-yaml":
            head = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
            errors = [] if isinstance(head, dict) else [{"message": "the head is no mapping"}]
            return self._json({"errors": errors, "warnings": []}, 400 if errors else 200)
        if path == "/api/repos/create":
            name = "{organization}/{name}".format(**json.loads(body))
            self.server.repositories.setdefault(name, {})
            return self._json({"url": f"{self._endpoint}/{name}", "name": name})
        called = _API.fullmatch(path) or _FILE.fullmatch(path)
        files = None if called is None else self.server.repositories.get(called["name"])
        if called is None or files is None:
            return self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound"})
        if called["revision"] not in (None, "main", COMMIT):
            return self._send(b"{}", 404, {"X-Error-Code": "RevisionNotFound"})
        return (
            self._file(files, called["path"])
            if called.re is _FILE
            else self._call(files, called, body)
        )

    def _call(self, files: dict[str, bytes], called: "re.Match[str]", body: bytes) -> None:
        if called["call"] == "tree":
            entries = {
                path: {"size": len(each), "oid": sha1(each).hexdigest()}
                for path, each in files.items()
            }
            return self._json(
                [{"type": "file", "path": path, **entry} for path, entry in entries.items()]
            )
        if called["call"] == "preupload":
            paths = [each["path"] for each in json.loads(body)["files"]]
            return self._json(
                {
                    "files": [
                        {"path": path, "uploadMode": "regular", "shouldIgnore": False}
                        for path in paths
                    ]
                }
            )
        if called["call"] == "commit":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return self._json(
                {
                    "commitOid": COMMIT,
                    "commitUrl": f"{self._endpoint}/{called['name']}/commit/{COMMIT}",
                }
            )
        siblings = [{"rfilename": path} for path in files]
        return self._json(
            {"id": called["name"], "sha": COMMIT, "private": True, "tags": [], "siblings": siblings}
        )

    def _file(self, files: dict[str, bytes], path: str) -> None:
        if path not in files:
            return self._send(b"", 404, {"X-Error-Code": "EntryNotFound"})
        etag = sha1(files[path]).hexdigest()
        return self._send(files[path], 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'})

    @property
    def _endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json"})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def served_hub() -> Iterator[Hub]:
    """A hub, until the `with` block ends."""
    with Hub() as hub:
        Thread(target=hub.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()

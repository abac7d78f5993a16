"""Files of web servers, which may pack what they send."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.storage import files as storage
from beamrank.storage.globs import find

_DOCS = b"".join(
    b'{"id": "d%d", "contents": "%s"}\n' % (number, b"bread " * 30) for number in range(300)
)


class _Handler(BaseHTTPRequestHandler):
    """Packs what it sends to who accepts that, or, below /always/, everything; ranges are those of
    the packed bytes.
    """

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(sends=False)

    def do_GET(self) -> None:
        self._answer(sends=True)

    def _answer(self, sends: bool) -> None:
        content = b"q 0 d1 1\n" if self.path.endswith("qrels") else _DOCS
        if self.path.startswith("/page"):
            content = b'<a href="a.jsonl">a</a> <a href="b.jsonl">b</a>'
        packs = "always" in self.path or "gzip" in self.headers.get("Accept-Encoding", "")
        content = gzip.compress(content) if packs else content
        start, _, end = self.headers.get("Range", "bytes=0-").partition("=")[2].partition("-")
        part = content[int(start) : int(end) + 1 if end else None]
        self.send_response(206 if "Range" in self.headers else 200)
        if packs:
            self.send_header("Content-Encoding", "gzip")
        self.send_header(
            "Content-Range", f"bytes {start}-{int(start) + len(part) - 1}/{len(content)}"
        )
        self.send_header("Content-Length", str(len(part)))
        if self.path.startswith("/page"):
            self.send_header("Content-Type", "text/html")
        self.end_headers()
        if sends:
            self.wfile.write(part)


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_file_of_a_server_that_packs_is_read_to_its_end(server):
    url = f"{server}/docs.jsonl"
    assert storage.size_bytes(url) == len(_DOCS)
    units = list_units(CorpusConfig(path=url, format="jsonl"), unit_bytes=1 << 14)
    docs = [each for unit in units for batch in read_unit(unit) for each in batch.doc_ids]
    assert docs == [f"d{number}" for number in range(300)]
    assert len(units) > 1
    assert read_qrels(f"{server}/qrels").relevance == {"q": {"d1": 1}}


def test_file_whose_server_packs_everything_is_refused_where_its_size_counts(server):
    with pytest.raises(PreflightError, match="size"):
        list_units(CorpusConfig(path=f"{server}/always/docs.jsonl", format="jsonl"))
    assert read_qrels(f"{server}/always/qrels").relevance == {"q": {"d1": 1}}


def test_page_of_links_is_a_folder_only_by_its_slash(server):
    page = f"{server}/page"
    assert not storage.is_folder(page)
    assert find(page) == [page]
    assert storage.is_folder(f"{page}/")
    assert find(f"{page}/") == [f"{page}/a.jsonl", f"{page}/b.jsonl"]

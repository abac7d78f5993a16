"""OpenLineage events, as a server on loopback receives them from the library's own client."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from beamrank.errors import BeamrankError
from pipelines.console.progress import ConsoleProgress
from pipelines.execute import run
from pipelines.lineage import lineage
from tests.support.small_collection import SmallCollection


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return SmallCollection(tmp_path_factory.mktemp("small")).given_run().with_models().with_qrels()


@pytest.fixture
def events(monkeypatch):
    """The events that reach the server, and its address in OPENLINEAGE_URL."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "search")
    yield received
    server.shutdown()
    server.server_close()


def test_run_sends_its_start_and_its_end_with_inputs_and_outputs(collection, events, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/weekly.rerank/01968f4e-1111-7222-8333-444455556666")
    done = run(collection.path, output=tmp_path / "out")
    assert [path for path, _ in events] == ["/api/v1/lineage"] * 2
    start, complete = (event for _, event in events)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["job"] == {"namespace": "search", "name": "beamrank.test", "facets": {}}
    parent = complete["run"]["facets"]["parent"]["job"]
    assert (parent["namespace"], parent["name"]) == ("airflow", "weekly.rerank")
    names = {each["name"] for each in start["inputs"]}
    assert {str(collection.folder / name) for name in ("corpus.jsonl", "topics.tsv", "qrels.txt", "given.trec")} < names
    versions = [each["facets"]["version"]["datasetVersion"] for each in start["inputs"] if each["facets"]]
    assert len(versions) == 3, "the corpus and both checkpoints"
    assert not start["outputs"]
    written = {each["name"]: each["facets"]["schema"]["fields"] for each in complete["outputs"]}
    assert set(written) == set(done.runs.values())
    assert all([field["name"] for field in fields][2] == "doc_id" for fields in written.values())


def test_run_that_fails_sends_the_error(collection, events):
    planned = collection.plan()

    def fail():
        with lineage(planned.plan, planned.config, "mono", ConsoleProgress(quiet=True)):
            raise BeamrankError("the disk is full")

    with pytest.raises(BeamrankError):
        fail()
    (_, start), (_, failed) = events
    assert (start["eventType"], failed["eventType"]) == ("START", "FAIL")
    assert failed["job"]["name"] == "beamrank.test.mono"
    assert failed["run"]["facets"]["errorMessage"]["message"] == "the disk is full"


def test_server_that_does_not_answer_is_a_warning(collection, monkeypatch, capsys):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", json.dumps({"total": 0}))
    planned = collection.plan()
    with lineage(planned.plan, planned.config, None, ConsoleProgress(quiet=True)) as wrote:
        wrote([])
    assert capsys.readouterr().err.count("no OpenLineage") == 2


def test_package_that_is_missing_is_a_warning(collection, monkeypatch, capsys):
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(__import__("sys").modules, "openlineage.client", None)
    planned = collection.plan()
    with lineage(planned.plan, planned.config, None, ConsoleProgress(quiet=True)):
        pass
    assert "pip install 'beamrank[lineage]'" in capsys.readouterr().err


def test_run_without_settings_of_openlineage_sends_nothing(collection, events, monkeypatch):
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.delenv("OPENLINEAGE_NAMESPACE")
    planned = collection.plan()
    with lineage(planned.plan, planned.config, None, ConsoleProgress(quiet=True)):
        pass
    assert events == []

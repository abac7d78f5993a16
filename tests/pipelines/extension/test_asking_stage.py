"""A stage from outside the project that asks a server, which costs money: no answer is paid twice,
and shards without answers stay open.
"""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit import schemas
from beamrank.config.cascade import PLUGINS
from beamrank.config.stages import StageConfig
from beamrank.errors import LeftOpenError, TemporaryError
from beamrank.ranking.rankings import Rankings, rank_docs
from models.scoring.answers import Answers, Contents, Cut
from models.stages.base import Stage
from models.stages.compute import Computed, ShardInputs
from tests import ROOT
from tests.support.plugins import install
from tests.support.processes import beamrank_here, refused, succeed
from tests.support.runs import assert_same_bytes, run_here
from tests.support.small_collection import SmallCollection

_PAIRS = 10 * 7


class JudgeConfig(StageConfig):
    """Grades of a server."""

    endpoint: str


@dataclass(frozen=True, kw_only=True)
class Judge(Stage):
    """Asks a server for the grade of each doc."""

    type_name = "judge"
    section = JudgeConfig
    schema = schemas.MONO
    needs = "texts"
    input_docs = 1
    any_processor = True
    asks = True

    endpoint: str

    def cost(self, topics: int) -> int:
        return topics * self.k

    def compute(self, inputs: ShardInputs) -> Computed:
        received, texts = self.received(inputs), inputs.read("texts")
        contents = Contents.of(texts, instructed=False)
        pairs = [(query, doc) for query, docs in sorted(received.items()) for doc in docs]
        keys = _keys(contents, *zip(*pairs, strict=True))
        text_of = {
            doc: text
            for row in texts.to_pylist()
            for doc, text in zip(row["doc_ids"], row["doc_texts"], strict=True)
        }
        scores = [
            inputs.ask(key, partial(self._grade, text_of[doc]), _is_valid)["grade"] or 0.0
            for key, (_, doc) in zip(keys, pairs, strict=True)
        ]
        query_ids, doc_ids = zip(*pairs, strict=True)
        ranks = [received[query].index(doc) + 1 for query, doc in pairs]
        columns = [query_ids, doc_ids, np.zeros(len(pairs), np.int16), ranks, scores]
        return Computed(pa.table(columns, schema=self.schema), {})

    def _grade(self, text: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self.endpoint, text.encode()) as response:
                answer: dict[str, Any] = json.load(response)
        except OSError as error:
            raise LeftOpenError(f"{self.endpoint} does not answer: {error}") from error
        return answer

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        contents = Contents.of(tokens, instructed=False)
        keys = _keys(contents, part["query_id"].to_pylist(), part["doc_id"].to_pylist())
        scores = zip(keys, part["score"].to_pylist(), strict=True)
        return {key: {"grade": score} for key, score in scores if score}

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:
        assert before is not None
        return rank_docs(before, part, self.k, "max", k)


def _is_valid(answer: Any) -> bool:
    return answer["grade"] is not None


def _keys(contents: Contents, query_ids: Any, doc_ids: Any) -> list[bytes]:
    queries, docs = contents.find(query_ids, doc_ids)
    return contents.keys(queries, Cut(docs, np.zeros_like(docs), contents.doc_lengths[docs]))


@dataclass
class Server:
    """Grades a text by its length. `answers` is how many more it gives, None without an end;
    `grades` is false where it does not know any.
    """

    calls: int = 0
    answers: int | None = None
    grades: bool = True
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def grade(self, text: bytes) -> float | None:
        """Raises IndexError where it gives no more answers."""
        with self.lock:
            self.calls += 1
            if self.answers is not None:
                self.answers -= 1
                if self.answers < 0:
                    raise IndexError
        time.sleep(self.seconds)
        return 1.0 + len(text) if self.grades else None

    @property
    def handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    content = json.dumps({"grade": server.grade(text)}).encode()
                except IndexError:
                    self.send_error(503)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    made = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), made.handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield made, f"http://127.0.0.1:{listening.server_port}/"
        listening.shutdown()


@pytest.fixture
def collection(tmp_path, monkeypatch, server) -> SmallCollection:
    install(tmp_path / "package", monkeypatch, PLUGINS, judge=f"{__name__}:Judge")
    # Processes find this file there, whatever their current folder is.
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    made = SmallCollection(tmp_path).given_run()
    made.keys |= {"cascade": [{"judge": {"endpoint": server[1], "k": 7}}], "shards": 5}
    return made


def _stage(output: Path) -> dict[str, Any]:
    stages = json.loads(succeed("status", output, "--json").stdout)["stages"]
    return {stage["stage"]: stage for stage in stages}["judge"]


def _counts(output: Path) -> dict[str, int]:
    sums: dict[str, int] = {}
    for path in (output / "judge/receipts").glob("[0-9]*.json"):
        for name, count in json.loads(path.read_text())["counts"].items():
            sums[name] = sums.get(name, 0) + count
    return sums


@pytest.mark.slow
def test_answers_that_a_killed_process_kept_are_not_paid_again(collection, server, tmp_path):
    made, _ = server
    expected = Path(run_here(collection.path).plan.output)
    assert made.calls == _PAIRS
    assert _counts(expected) == {"requests": _PAIRS, "repeated": 0}
    made.calls, made.seconds, output = 0, 0.02, tmp_path / "killed"
    command = [sys.executable, "-m", "beamrank", "run", collection.path, "--only", "0/1"]
    with subprocess.Popen([*map(str, command), "--output", str(output)]) as process:
        while made.calls < _PAIRS // 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    made.seconds = 0.0
    run_here(collection.path, output)
    assert _PAIRS <= made.calls <= _PAIRS + 1
    assert _counts(output)["kept"] > 0
    assert_same_bytes(output, expected)


def test_shards_without_answers_stay_open_until_the_next_run(collection, server, tmp_path):
    made, url = server
    expected, output = Path(run_here(collection.path).plan.output), tmp_path / "open"
    made.calls, made.answers = 0, 16
    with pytest.raises(TemporaryError, match="left open") as raised:
        run_here(collection.path, output)
    assert url in str(raised.value)
    # A shard of two topics asks for 14 docs: the first is done, and the others stop at once.
    assert made.calls == 16 + 4
    status = _stage(output)
    assert (status["done"], status["kept_answers"]) == (1, 16)
    assert [left["shard"] for left in status["left_open"]] == [1, 2, 3, 4]
    assert not (output / "runs").exists()
    notes = json.loads(succeed("verify", output, "--json").stdout)["notes"]
    assert "kept answers: 16" in " ".join(notes)
    made.answers = None
    run_here(collection.path, output)
    assert made.calls == _PAIRS + 4
    assert _stage(output)["left_open"] == []
    assert_same_bytes(output, expected)


def test_shares_leave_their_own_shards_open(collection, server, tmp_path):
    made, _ = server
    output = tmp_path / "shares"
    made.answers = 14
    shares = [
        beamrank_here("run", collection.path, "--only", f"{number}/2", "--output", output)
        for number in range(2)
    ]
    assert [share.returncode for share in shares] == [75, 75]
    made.answers = None
    for number in range(2):
        succeed("run", collection.path, "--only", f"{number}/2", "--output", output)
    assert_same_bytes(output, Path(run_here(collection.path).plan.output))


def test_answers_of_a_sealed_stage_are_garbage(collection, server, tmp_path):
    made, _ = server
    made.answers, output = 20, tmp_path / "kept"
    with pytest.raises(TemporaryError):
        run_here(collection.path, output)
    old = ("gc", output, "--yes", "--min-age-hours", "0")
    succeed(*old)
    assert len([*(output / "asked").iterdir()]) == 20
    made.answers = None
    run_here(collection.path, output)
    assert made.calls == _PAIRS + 4
    succeed(*old)
    assert [*(output / "asked").iterdir()] == []
    assert beamrank_here("verify", output).returncode == 0


def test_damaged_answer_is_named_and_asked_again(collection, server, tmp_path):
    made, _ = server
    made.answers, output = 20, tmp_path / "damaged"
    with pytest.raises(TemporaryError):
        run_here(collection.path, output)
    first = min((output / "asked").iterdir())
    first.write_text(first.read_text().replace('"grade": ', '"grade": 1'))
    found = json.loads(beamrank_here("verify", output, "--json").stdout)["findings"]
    assert [finding["file"] for finding in found] == [f"asked/{first.name}"]
    made.answers, made.calls = None, 0
    run_here(collection.path, output)
    assert made.calls == _PAIRS - 20 + 1
    assert_same_bytes(output, Path(run_here(collection.path).plan.output))


def test_answers_are_reused_from_other_outputs_and_later_plans(collection, server, tmp_path):
    made, _ = server
    earlier = Path(run_here(collection.path).plan.output)
    made.calls = 0
    collection.keys["reuse"] = [str(earlier)]
    run_here(collection.path, tmp_path / "other", ["judge.k=8"])
    assert made.calls == 10
    assert _counts(tmp_path / "other")["reused"] == _PAIRS
    collection.keys["reuse"] = []
    run_here(collection.path, earlier, ["judge.k=8"])
    assert made.calls == 20


def test_answers_that_are_not_valid_are_not_used_by_a_later_plan(collection, server, tmp_path):
    made, _ = server
    made.grades, made.answers, output = False, 60, tmp_path / "invalid"
    with pytest.raises(TemporaryError):
        run_here(collection.path, output)
    made.answers, made.calls = None, 0
    run_here(collection.path, output)
    # Its own shards use them: the same plan asks once.
    assert made.calls == _PAIRS - 60
    made.grades, made.calls = True, 0
    run_here(collection.path, output, ["judge.k=6"])
    assert made.calls == 60


@pytest.mark.parametrize("arguments", [(), ("--only", "0/1")], ids=["job", "share"])
def test_crash_of_a_stage_names_its_file_and_line(collection, arguments, monkeypatch):
    def crash(_: Judge, text: str) -> dict[str, Any]:
        return {"grade": int(text)}

    monkeypatch.setattr(Judge, "_grade", crash)
    line = crash.__code__.co_firstlineno + 1
    message = refused("run", collection.path, *arguments, code=1)
    assert f"({__file__}, line {line})" in message

"""The stage `listwise` asks a server, and keeps all that a run promises."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import beamrank
from beamrank.commit.receipts import Manifest
from beamrank.commit.scans import ScanReport
from beamrank.config.load import load_config
from beamrank.errors import BeamrankError, ConfigError, DataError, TemporaryError
from contrib.listwise.prompt import RANK_ZEPHYR
from contrib.listwise.windows import Places, block_windows, borda, slide
from models.stages.base import Worker
from models.stages.core import open_stages
from pipelines.console.progress import ConsoleProgress
from pipelines.plan.estimate import estimate
from pipelines.shares import Share, ShareLauncher
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import (
    PlannedRun,
    assert_same_bytes,
    plan_run,
    read_trec,
    run_bytes,
    run_here,
)
from tests.support.services.chat_server import BUSY, Fault, best_first, chat_server
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

_WORDS = 12


@pytest.fixture
def collection(tmp_path, chat) -> SmallCollection:
    made = SmallCollection(tmp_path).given_run()
    section = {
        "endpoint": chat.endpoint,
        "model": "tiny",
        "k": 8,
        "window": 4,
        "stride": 2,
        "doc_words": _WORDS,
    }
    made.keys["cascade"] = [{"listwise": section}]
    return made


def _manifest(run: PlannedRun) -> Manifest:
    manifest = run.plan.seal("listwise")
    assert manifest is not None
    return manifest


def _expected(query_id: str, order: str) -> list[str]:
    """The ranking by a plain loop over the server's rule."""
    docs = CANDIDATES[query_id][:8]
    texts = [" ".join(DOCS[doc].split()[:_WORDS]) for doc in docs]

    def ask(window: Places) -> Places:
        return best_first(TOPICS[query_id], [texts[doc] for doc in window])

    windows = block_windows(8, 4)
    ranked = slide(8, 4, 2, ask) if order == "sliding" else borda(8, windows, map(ask, windows))
    return [docs[place] for place in ranked] + CANDIDATES[query_id][8:]


@pytest.mark.parametrize(("order", "windows"), [("sliding", 3), ("blocks", 6)])
def test_run_equals_a_plain_loop(collection, chat, order, windows):
    collection.keys["cascade"][0]["listwise"]["order"] = order
    (counted,) = (
        stage for stage in estimate(collection.config).stages if stage.stage == "listwise"
    )
    assert counted.inferences == 10 * windows
    run = run_here(collection.path)
    path = Path(run.plan.output) / "runs/listwise.trec"
    assert read_trec(path) == {query_id: _expected(query_id, order) for query_id in TOPICS}
    scores = [float(line.split()[4]) for line in path.read_text().splitlines()]
    assert scores[:9] == [7, 6, 5, 4, 3, 2, 1, 0, -1]
    assert len(chat.asked) == 10 * windows
    manifest = _manifest(run)
    assert {
        name: manifest.total(name) for name in ("queries", "windows", "inferences", "requests")
    } == {
        "queries": 10,
        "windows": 10 * windows,
        "inferences": 10 * windows,
        "requests": 10 * windows,
    }
    assert manifest.total("unparsed") == manifest.total("reused") == 0
    assert manifest.total("answer_tokens") == 7 * 10 * windows
    assert manifest.total("prompt_tokens") == sum(len(each.prompt.split()) for each in chat.asked)
    assert manifest.total("system_fingerprint fp_1") == 10 * windows


def _section(made: SmallCollection) -> dict[str, Any]:
    section: dict[str, Any] = made.keys["cascade"][0]["listwise"]
    return section


def _lose_a_shard(output: Path, answers: bool) -> None:
    """The second shard of the stage is open again, and its answers may be lost too."""
    (manifest,) = (output / "listwise").glob("manifest-*.json")
    manifest.unlink()
    sorted((output / "listwise/receipts").iterdir())[1].unlink()
    if not answers:
        shutil.rmtree(output / "asked")


def test_two_versions_of_a_model_are_reported(collection, chat):
    run = run_here(collection.path)
    _lose_a_shard(collection.output, answers=False)
    stage = open_stages(run.plan.stages)[-1]
    nothing = ScanReport(0, 0, 0, ())
    chat.fingerprint = "fp <2>"
    run = run_here(collection.path)
    requests, versions = stage.review(_manifest(run), nothing)
    assert "30 requests" in requests
    assert f"{7 * 30} of answers" in requests
    assert versions.endswith(": fp_1, fp__2_")


def test_answer_that_names_nobody_is_asked_once_more(collection, chat):
    collection.keys["shards"] = 1
    # The requests of a process, one after another.
    _section(collection)["requests_at_once"] = 1
    chat.answers.extend(["I cannot.", "[3] > [9] > [3]"])
    run = run_here(collection.path)
    manifest = _manifest(run)
    counted = ("windows", "inferences", "unparsed")
    assert [manifest.total(name) for name in counted] == [30, 31, 0]
    first, second = (asked.prompt for asked in chat.asked[:2])
    assert second.startswith(first)
    assert "[2] > [1]" in second.removeprefix(first)
    (row,) = (row for row in run.rows("listwise") if row["query_id"] == "q0")
    places = [[row[name][at] for name in ("windows", "again", "answers")] for at in (-2, -1)]
    assert places == [[[4, 5, 6, 7], False, []], [[4, 5, 6, 7], True, [2]]]


def test_too_many_windows_without_an_answer_are_an_error_of_the_stage(collection, chat):
    _section(collection)["max_unparsed"] = 0.1
    chat.answers.extend(["no idea"] * 1000)
    with pytest.raises(DataError) as error:
        run_here(collection.path)
    said = str(error.value)
    assert "30 of 30" in said
    assert said.count("4 docs from d") == 5
    assert "listwise.max_unparsed 0.1" in said
    assert "listwise.template" in said
    assert len(chat.asked) == 60
    # A higher limit accepts them, with no request more; the order stays.
    run = run_here(collection.path, overrides=["listwise.max_unparsed=1"])
    assert len(chat.asked) == 60
    assert read_trec(collection.output / "runs/listwise.trec") == CANDIDATES
    assert _manifest(run).total("unparsed") == 30


def test_answers_that_name_nobody_are_not_reused(collection, chat):
    _section(collection)["max_unparsed"] = 1
    chat.answers.extend(["no idea"] * 60)
    run_here(collection.path)
    _section(collection)["stride"] = 4
    again = run_here(collection.path)
    assert _manifest(again).total("unparsed") == 0
    assert len(chat.asked) == 60 + 20


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sliding", "blocks"])
def test_stage_has_the_same_bytes_for_shards_shares_and_runners(collection, chat, tmp_path, order):
    _section(collection)["order"] = order
    expected = Path(run_here(collection.path).plan.output)
    seven = run_here(collection.path, tmp_path / "seven", ["shards=7"])
    assert run_bytes(Path(seven.plan.output)) == run_bytes(expected)
    for number in range(2):
        done = beamrank_here(
            "run", collection.path, "--only", f"{number}/2", "--output", tmp_path / "only"
        )
        assert done.returncode == 0, done.stderr
    assert_same_bytes(tmp_path / "only", expected)
    made = beamrank.run(str(collection.path), runner="embed", output=tmp_path / "embed")
    assert_same_bytes(Path(made.output), expected)


def test_shards_stay_open_where_the_server_is_busy_and_no_answer_is_paid_twice(
    collection, chat, tmp_path
):
    expected = Path(run_here(collection.path).plan.output)
    before = len(chat.asked)
    busy = BUSY._replace(headers={"Retry-After": "3600"})
    chat.faults.extend([Fault()] * 16 + [busy] * 100)
    with pytest.raises(TemporaryError, match=r"127\.0\.0\.1 .*429: slow down"):
        run_here(collection.path, tmp_path / "open")
    failed = 100 - len(chat.faults)
    # After twenty in a row none is asked.
    assert 0 < failed < 30
    assert not (tmp_path / "open/runs").exists()
    chat.faults.clear()
    run = run_here(collection.path, tmp_path / "open")
    assert len(chat.asked) - before == 30 + failed
    assert _manifest(run).total("requests") + _manifest(run).total("kept") == 30
    assert _manifest(run).total("kept") > 0
    assert_same_bytes(tmp_path / "open", expected)


@pytest.mark.slow
def test_stage_resumes_is_verified_audited_and_shown(collection, chat, tmp_path):
    whole = Path(run_here(collection.path).plan.output)
    resumed = Path(run_here(collection.path, tmp_path / "resumed").plan.output)
    asked = len(chat.asked)
    for answers, more in ((True, 0), (False, 9)):
        _lose_a_shard(resumed, answers)
        run_here(collection.path, resumed)
        assert len(chat.asked) == asked + more
        assert_same_bytes(resumed, whole)
    succeed("verify", whole)
    audited = json.loads(succeed("audit", whole, "--json").stdout)
    assert [stage["stage"] for stage in audited["stages"]] == ["listwise"]
    assert audited["wrong"] == []
    for arguments in (["status"], ["inspect"], ["inspect", "--query", "q0"], ["gc", "--dry-run"]):
        succeed(*arguments, whole)
    succeed("report", whole, "--output", tmp_path / "report")
    assert "listwise" in (tmp_path / "report/report.html").read_text()


def test_answers_to_the_same_windows_are_reused(collection, chat, tmp_path):
    whole = Path(run_here(collection.path).plan.output)
    asked = len(chat.asked)
    # One doc more: in other windows. Fewer: those of the last window are others.
    fresh = Path(run_here(collection.path, tmp_path / "fresh", ["listwise.k=6"]).plan.output)
    fresh_asked, asked = len(chat.asked) - asked, len(chat.asked)
    again = run_here(collection.path, tmp_path / "again", ["listwise.k=6", f"reuse=[{whole}]"])
    reused = Path(again.plan.output)
    assert_same_bytes(reused, fresh)
    manifest = _manifest(again)
    assert len(chat.asked) - asked == manifest.total("inferences") < fresh_asked
    assert manifest.total("reused") + manifest.total("inferences") == 20
    # What decides an answer is asked again.
    for name, value in {"model": "other", "identity": "v2", "doc_words": 11}.items():
        asked = len(chat.asked)
        run_here(collection.path, tmp_path / name, [f"listwise.{name}={value}", f"reuse=[{whole}]"])
        assert len(chat.asked) == asked + 30
    # The address does not.
    asked = len(chat.asked)
    with chat_server() as other:
        run_here(collection.path, overrides=[f"listwise.endpoint={other.endpoint}"])
        assert (len(chat.asked), len(other.asked)) == (asked, 0)


def _requests(made: SmallCollection, *changes: str) -> tuple[int, int | None]:
    """The most and the least that a plan states."""
    config = load_config(str(made.path), changes)
    (stage,) = (stage for stage in estimate(config).stages if stage.stage == "listwise")
    return stage.remaining_inferences, stage.least_requests


def test_plan_states_requests_by_the_answers_that_are_kept(collection, chat):
    assert _requests(collection) == (30, 30)
    busy = BUSY._replace(headers={"Retry-After": "3600"})
    chat.faults.extend([Fault()] * 16 + [busy] * 100)
    with pytest.raises(TemporaryError):
        run_here(collection.path)
    chat.faults.clear()
    assert len([*(collection.output / "asked").iterdir()]) == 16
    # By the windows themselves, in a process whose last calls failed.
    assert _requests(collection) == (14, 14)
    # Other docs, which are not known yet, of topics that an earlier plan has.
    assert _requests(collection, "listwise.k=6") == (20, 0)
    assert "0 to 20 requests" in succeed("plan", collection.path, "--set", "listwise.k=6").stdout
    for path in (collection.output / "texts").rglob("*.json"):
        path.unlink()
    assert _requests(collection) == (30, 30 - 16)
    asked = len(chat.asked)
    run_here(collection.path)
    assert len(chat.asked) - asked == 14
    assert _requests(collection) == (0, 0)


def test_plan_states_requests_by_windows_of_earlier_outputs(collection, chat, tmp_path):
    whole = Path(run_here(collection.path).plan.output)
    changes = ["listwise.k=6", f"reuse=[{whole}]", f"output={tmp_path / 'again'}"]
    planned = plan_run(collection.path, changes)
    planned.plan.publish()
    one = ShareLauncher(
        planned.plan, planned.config, ConsoleProgress(quiet=True), share=Share(0, 1)
    )
    assert _requests(collection, *changes) == (20, 0)
    one.run(planned.plan.stages[:-1])
    # A window above one without an answer may be as before.
    assert _requests(collection, *changes) == (20, 10)
    asked = len(chat.asked)
    one.run(planned.plan.stages[-1:])
    assert 10 <= len(chat.asked) - asked < 20


def test_template_travels_in_the_plan(collection, chat, tmp_path):
    (tmp_path / "prompt.txt").write_text(f"{RANK_ZEPHYR} Thank you.\n")
    _section(collection)["template"] = "prompt.txt"
    planned = collection.plan()
    (tmp_path / "prompt.txt").unlink()
    planned.run()
    assert all(asked.prompt.endswith("Thank you.") for asked in chat.asked)
    assert planned.plan.stage("listwise").keys["template"] == f"{RANK_ZEPHYR} Thank you."


@pytest.mark.slow
def test_stage_orders_in_memory(collection, chat):
    run = read_trec(Path(beamrank.run(str(collection.path)).runs["listwise"]))
    candidates = {
        query_id: {doc: -float(at) for at, doc in enumerate(docs)}
        for query_id, docs in CANDIDATES.items()
    }
    ranked = beamrank.rerank(TOPICS, candidates, DOCS, cascade=collection.keys["cascade"])
    assert {query_id: list(docs) for query_id, docs in ranked["listwise"].items()} == run


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"endpoint": "ftp://host"}, "endpoint"),
        ({"endpoint": None}, "endpoint"),
        ({"model": ""}, "model"),
        ({"stride": 5}, "stride 5"),
        ({"window": 1}, "window"),
        ({"key": {"env": "A-B"}}, "key.env"),
        ({"key": {"env": "CHAT_KEY"}, "endpoint": "http://example.org/v1"}, "key"),
        ({"template": "lacking.txt"}, "docs"),
        ({"max_unparsed": 1.5}, "max_unparsed"),
        ({"endpoint": "https://user:pass@example.org/v1"}, "endpoint"),
    ],
)
def test_section_is_checked(collection, tmp_path, changed, key):
    (tmp_path / "lacking.txt").write_text("{query}")
    _section(collection).update(changed)
    with pytest.raises(ConfigError, match=key):
        _ = collection.config


def test_plan_says_where_texts_go(collection):
    shown = succeed("plan", collection.path)
    words = 4 * _WORDS + len(RANK_ZEPHYR.split())
    assert f"127.0.0.1, at most {words} words" in shown.stdout + shown.stderr
    assert "30" in shown.stdout


def test_workers_that_ask_a_server_need_no_accelerator(collection):
    assert open_stages(collection.plan().plan.stages)[-1].worker is Worker.CPU


def test_worker_without_the_key_fails_at_once(collection, chat, monkeypatch):
    monkeypatch.delenv("CHAT_KEY", raising=False)
    _section(collection)["key"] = {"env": "CHAT_KEY"}
    with pytest.raises(BeamrankError, match=r"127\.0\.0\.1 .*CHAT_KEY"):
        run_here(collection.path)
    monkeypatch.setenv("CHAT_KEY", "secret-of-the-test")
    output = Path(run_here(collection.path).plan.output)
    assert {asked.headers["Authorization"] for asked in chat.asked} == {"Bearer secret-of-the-test"}
    files = (path for path in output.rglob("*") if path.is_file())
    assert not [path for path in files if b"secret-of-the-test" in path.read_bytes()]


def test_texts_of_docs_are_in_no_log(collection, chat, caplog):
    caplog.set_level(logging.DEBUG)
    collection.keys["shards"] = _section(collection)["requests_at_once"] = 1
    # The server repeats a doc of the first request.
    doc = DOCS[CANDIDATES["q0"][5]].split()[:_WORDS]
    chat.faults.append(Fault(400, {"error": {"message": f"too long: {' '.join(doc)}"}}))
    with pytest.raises(BeamrankError) as error:
        run_here(collection.path)
    shown = caplog.text + str(error.value)
    assert "HTTP 400" in shown
    assert not [doc for doc, text in DOCS.items() if " ".join(text.split()[:4]) in shown]

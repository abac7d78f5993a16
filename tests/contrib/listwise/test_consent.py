"""How many requests may be made, and where texts may go."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import beamrank
from beamrank.errors import BeamrankError, ConfigError, DataError
from contrib.listwise import consent
from pipelines.console.progress import ConsoleProgress
from pipelines.shares import Share, ShareLauncher
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import plan_run
from tests.support.services.chat_server import BUSY, Fault
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection


@pytest.fixture
def collection(tmp_path, chat) -> SmallCollection:
    """Thirty requests to an address that is not known to be this machine."""
    made = SmallCollection(tmp_path).given_run()
    section = {"endpoint": chat.elsewhere, "model": "tiny", "k": 8, "window": 4, "stride": 2}
    made.keys["cascade"] = [{"listwise": section}]
    return made


def _run(made: SmallCollection, **keys: object) -> Path:
    changed = {f"listwise.{name}": value for name, value in keys.items()}
    return Path(beamrank.run(str(made.path), set=changed).output)


def test_texts_go_nowhere_without_consent(collection, chat):
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0, in up to 30 .*listwise\.max_requests"):
        _run(collection)
    assert chat.asked == []
    assert not collection.output.exists()


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["y", "n"])
def test_user_is_asked_on_a_terminal(collection, chat, answer):
    """A terminal of the system's."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "beamrank", "run", str(collection.path), "--only", "0/1"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        shown = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:
                break
            shown += read
            if not read:
                break
    os.close(ours)
    assert b"0.0.0.0, in up to 30 requests" in shown
    assert (process.returncode, len(chat.asked)) == {"y": (0, 30), "n": (2, 0)}[answer]


def test_ranking_in_memory_needs_consent_too(collection, chat):
    section = collection.keys["cascade"][0]["listwise"]
    run = {"q0": {doc: -float(place) for place, doc in enumerate(CANDIDATES["q0"])}}
    topics = {"q0": TOPICS["q0"]}
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0, in up to 3 "):
        beamrank.rerank(topics, run, DOCS, cascade=[{"listwise": section}])
    with pytest.raises(BeamrankError, match="max_requests allows 2"):
        beamrank.rerank(topics, run, DOCS, cascade=[{"listwise": section | {"max_requests": 2}}])
    assert chat.asked == []
    ranked = beamrank.rerank(
        topics, run, DOCS, cascade=[{"listwise": section | {"max_requests": 3}}]
    )
    assert sorted(ranked["listwise"]["q0"]) == sorted(CANDIDATES["q0"])
    assert len(chat.asked) == 3


def test_limit_is_checked_before_the_start_by_the_most(collection, chat):
    with pytest.raises(BeamrankError, match=r"30 requests, .*max_requests allows 29"):
        _run(collection, max_requests=29)
    assert chat.asked == []
    assert not collection.output.exists()


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sliding", "blocks"])
def test_limit_is_checked_before_the_stage_by_what_is_not_kept(collection, chat, tmp_path, order):
    """Six docs in place of eight: in blocks all pairs are known, and of windows some."""
    collection.keys["cascade"][0]["listwise"]["order"] = order
    earlier = _run(collection, max_requests=60)
    chat.asked.clear()
    keys = {"listwise.k": 6, "listwise.max_requests": 20}
    options = {"output": tmp_path / "less", "reuse": [str(earlier)]}
    made = beamrank.run(str(collection.path), set=keys, **options)
    asked = len(chat.asked)
    assert f'"inferences": {asked}' in succeed("status", made.output, "--json").stdout
    assert asked == 0 if order == "blocks" else 0 < asked < 20
    if asked:
        keys["listwise.max_requests"] = asked - 1
        with pytest.raises(BeamrankError, match=rf"max_requests allows {asked - 1}"):
            beamrank.run(str(collection.path), set=keys, **options | {"output": tmp_path / "no"})
        assert len(chat.asked) == asked


def _share(made: SmallCollection, number: int, *changes: str) -> bool:
    """One of two processes; whether it was the last."""
    planned = plan_run(made.path, changes)
    planned.plan.publish()
    console = ConsoleProgress(quiet=True)
    launcher = ShareLauncher(planned.plan, planned.config, console, share=Share(number, 2))
    launcher.run()
    return launcher.finish()


def test_limit_holds_for_all_shares_together(collection, chat):
    for number in range(2):
        with pytest.raises(BeamrankError, match=r"30 requests, .*max_requests allows 29"):
            _share(collection, number, "listwise.max_requests=29")
    assert chat.asked == []
    last = [_share(collection, number, "listwise.max_requests=30") for number in range(2)]
    assert (last, len(chat.asked)) == ([False, True], 30)


def test_last_share_checks_the_answers_that_name_nobody(collection, chat):
    chat.answers.extend(["no idea"] * 60)
    allowed = "listwise.max_requests=30"
    assert not _share(collection, 0, allowed)
    with pytest.raises(DataError, match=r"30 of 30 .*listwise\.max_unparsed 0\.05"):
        _share(collection, 1, allowed)
    assert _share(collection, 1, allowed, "listwise.max_unparsed=1")
    assert len(chat.asked) == 60


@pytest.mark.slow
def test_answers_that_are_kept_do_not_count(collection, chat):
    busy = BUSY._replace(headers={"Retry-After": "3600"})
    chat.faults.extend([Fault()] * 16 + [busy] * 100)
    with pytest.raises(BeamrankError):
        _run(collection, max_requests=30)
    chat.faults.clear()
    chat.asked.clear()
    # The shards that are done are no part of the rest; of the others some answers are kept.
    _run(collection, max_requests=30)
    assert len(chat.asked) == 14


@pytest.mark.slow
def test_audit_states_its_requests_first_and_asks_the_same(collection, chat, monkeypatch, tmp_path):
    allowed = _run(collection, max_requests=30)
    assert "up to 30 requests" in succeed("audit", allowed).stderr
    assert len(chat.asked) == 60
    # A plan whose user was asked on a terminal allows no more.
    with monkeypatch.context() as asked:
        asked.setattr(consent, "_granted", {"0.0.0.0"})
        agreed = Path(beamrank.run(str(collection.path), output=tmp_path / "agreed").output)
    assert len(chat.asked) == 90
    done = beamrank_here("audit", agreed)
    assert (done.returncode, "0.0.0.0" in done.stderr) == (2, True)
    assert len(chat.asked) == 90

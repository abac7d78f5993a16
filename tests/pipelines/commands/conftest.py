"""What the tests of commands share."""

from pathlib import Path

import pytest


@pytest.fixture
def two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: runs base.trec and other.trec, third.tsv with one of their two topics,
    and qrels.
    """
    (tmp_path / "base.trec").write_text(
        "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq2 Q0 c 1 3 t\nq2 Q0 d 2 2 t\n"
    )
    (tmp_path / "other.trec").write_text(
        "q1 Q0 b 1 3 t\nq1 Q0 a 2 2 t\nq2 Q0 c 1 3 t\nq2 Q0 d 2 2 t\n"
    )
    (tmp_path / "third.tsv").write_text("q1\tb\t1\nq1\tc\t2\n")
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 c 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path

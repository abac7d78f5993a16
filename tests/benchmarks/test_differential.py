"""A few random cases of each subject; `python -m benchmarks.differential` runs as many as one
likes.
"""

import pytest

from benchmarks.differential import ranking
from benchmarks.differential.__main__ import SUBJECTS, campaign, check_of

# Those of arithmetic are in `tests/beamrank`, and `reuse` in `tests/pipelines/runs/test_reuse.py`.
QUICK = {"families": 6}
SLOW = {"evaluation": 1000, "ranking": 2000, "families": 48, "bm25": 6}


def _cases():
    yield from (pytest.param(subject, count, id=subject) for subject, count in QUICK.items())
    for subject, count in SLOW.items():
        java = [pytest.mark.jvm] if subject == "bm25" else []
        yield pytest.param(subject, count, id=f"many of {subject}", marks=[pytest.mark.slow, *java])


@pytest.mark.parametrize(("subject", "count"), [*_cases()])
def test_random_cases_are_as_elsewhere(subject, count, capsys):
    (part,) = campaign(subject, 50_000, count)
    figures = part.figures
    assert figures["cases_that_differ"] == [], capsys.readouterr().out
    assert figures["values_compared"] > count


def test_case_that_differs_is_printed_with_its_command(monkeypatch, capsys):
    monkeypatch.setattr(ranking, "cut_docs", lambda inputs: inputs)
    parts = [part.figures for part in campaign("ranking", 0, 8, seconds=0)]
    assert [part["cases"] for part in parts] == [*range(1, 9)]
    differ = parts[-1]["cases_that_differ"]
    assert 0 < len(differ) < 8
    assert f"ranking --seed {differ[0]} --count 1" in capsys.readouterr().out


def test_case_is_the_same_each_time(tmp_path):
    assert check_of("ranking")(3, tmp_path) == check_of("ranking")(3, tmp_path)
    assert SLOW.keys() == set(SUBJECTS) - {"reuse"}

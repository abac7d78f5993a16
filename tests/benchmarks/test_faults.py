"""The campaign of random faults: what its cases are, what it notices, and a few of them."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.faults import __main__ as campaign
from benchmarks.faults import cases, growth
from benchmarks.faults.damage import Output, damage
from benchmarks.faults.launches import begin
from benchmarks.faults.worlds import read_runs

# Its first ten cases need no store and no Java.
_SEED = 72


def test_case_is_a_function_of_seed_and_number() -> None:
    drawn = [cases.draw_case(_SEED, number) for number in range(4000)]
    assert drawn[7] == cases.draw_case(_SEED, 7) != cases.draw_case(_SEED + 1, 7)
    assert {case.setup.runner for case in drawn} == cases.RUNNERS.keys()
    assert {case.setup.store for case in drawn} == {"disk", "s3", "gs"}
    assert {
        len(cases.draw_world(_SEED, number).keys["cascade"]) for number in range(cases.WORLDS)
    } == {1, 2, 3, 4}
    kinds = Counter(fault.kind for case in drawn for fault in case.faults)
    assert len(kinds) >= 65
    assert min(kinds.values()) >= 3


@pytest.mark.parametrize("kind", cases.DAMAGES)
def test_damage_changes_the_files_that_it_names(tmp_path: Path, kind: str) -> None:
    files = {f"mono/part-{number}.parquet": bytes([number] * 50) for number in range(9)}
    output = Output(str(tmp_path))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        output.write(name, content)
    damaged = damage(output, kind, cases.Fault(kind, 0.5, 3).drawn)
    now = {name: output.read(name) for name in output.files()}
    assert {name for name in files if now.get(name) != files[name]} == set(damaged) != set()


def test_lines_of_results_make_a_table() -> None:
    lines = [
        {
            "runner": "only",
            "faults": [["SIGKILL of the launcher", True], ["two launchers", False]],
            "broken": "",
        },
        {"runner": "prism", "faults": [["two launchers", True]], "broken": "its runs are wrong"},
    ]
    rows = campaign.outcomes(lines).splitlines()
    assert rows[2:7] == [
        "| SIGKILL of the launcher | 1 | 1 | 0 |",
        "| two launchers | 2 | 1 | 1 |",
        "| all with `only` | 2 | 1 | 0 |",
        "| all with `prism` | 1 | 1 | 1 |",
        "| all | 3 | 2 | 1 |",
    ]
    assert rows[-1] == "Cases: 2; broke a rule: 1."


def test_fault_of_another_kind_is_none_that_a_launcher_begins_with() -> None:
    assert not begin(cases.Fault("two launchers", 0.5, 3))


def test_growth_is_told_from_noise() -> None:
    noise = [0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.4] * 5
    samples = [{"leak": 2.0 * at + value, "flat": 100 + value} for at, value in enumerate(noise)]
    growths = growth.slopes(samples)
    assert growths["leak"][1] == pytest.approx(2, abs=0.1)
    assert growths["flat"][1] <= 0 <= growths["flat"][2]


def test_undisturbed_runs_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "runs/mono.msmarco").mkdir(parents=True)
    (tmp_path / "runs/bm25.trec").write_text("q1 Q0 d1 1 2.5 t\n")
    (tmp_path / "runs/bm25.trec.metadata.yaml").write_text("of one machine")
    for part, line in (("00001", "q2\td2\t1\n"), ("00000", "q1\td1\t1\n")):
        (tmp_path / f"runs/mono.msmarco/part-{part}.tsv").write_text(line)
    runs = read_runs(str(tmp_path))
    assert runs == {
        "bm25.trec": b"q1 Q0 d1 1 2.5 t\n",
        "mono.msmarco": [b"q1\td1\t1", b"q2\td2\t1"],
    }


def _campaign(tmp_path: Path, runners: tuple[str, ...], numbers: range) -> None:
    results = tmp_path / "faults.jsonl"
    failed = campaign.campaign(_SEED, numbers, runners, tmp_path / "campaign", results)
    lines = campaign.read(results)
    assert [(line["number"], line["broken"]) for line in lines] == [
        (number, "") for number in numbers
    ]
    assert not failed
    assert sum(struck for line in lines for _, struck in line["faults"]) > len(lines) / 2
    assert campaign.campaign(_SEED, numbers, runners, tmp_path / "campaign", results) == 0
    assert len(campaign.read(results)) == len(lines)


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.timeout(3600)
def test_hundred_runs_resume_after_random_faults(tmp_path: Path) -> None:
    _campaign(tmp_path, ("only", "local", "workers"), range(110))

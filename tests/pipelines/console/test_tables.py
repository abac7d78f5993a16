"""Tables on terminals of every width."""

import io

import pytest
from rich.console import Console

from beamrank.evaluation.evaluate import evaluate_run_files
from beamrank.evaluation.significance import compare_evaluations
from beamrank.evaluation.tables import P_VALUE, Column, Table, shown
from pipelines.commands import train
from pipelines.commands.evaluate import print_tables
from pipelines.console.tables import print_result, print_table

WIDTHS = [20, 40, 60, 80, 200]


def _console(width: int) -> Console:
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False
    )


def _printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_eval_table_fits_a_narrow_terminal(tmp_path, width, monkeypatch, capsys):
    """As `eval RUN --against A --against B --per-query` prints them."""
    topics = [
        f"enwiki:Aftertaste/Aftertaste%20processing%20in%20the%20cerebral%20cortex/{each}"
        for each in range(7)
    ]
    (tmp_path / "qrels").write_text("".join(f"{topic} 0 d1 1\n" for topic in topics))
    for run, docs in (("a", "d1 d2 d3"), ("b", "d2 d1 d3"), ("c", "d3 d2 d1")):
        # One topic differs, or there would be no spread and no interval.
        ranked = zip(topics, [*[docs.split()] * 6, ["d2", "d1"]], strict=True)
        rows = (
            f"{topic} Q0 {doc} 1 {-place} t\n"
            for topic, ids in ranked
            for place, doc in enumerate(ids)
        )
        (tmp_path / run).write_text("".join(rows))
    measures = ["RR@10", "nDCG@10", "AP", "P(rel=1)@2"]
    first, *others = evaluate_run_files(
        [str(tmp_path / name) for name in "abc"], str(tmp_path / "qrels"), measures
    )
    by_run = [compare_evaluations(first.evaluation, each.evaluation) for each in others]
    compared = list(zip("bc", by_run, strict=True))
    monkeypatch.setenv("COLUMNS", str(width))
    print_tables("a", first, True, compared)
    words = capsys.readouterr().out.split()
    figures = [
        f"{value:.4f}"
        for values in first.evaluation.per_query.values()
        for value in values.values()
    ]
    figures += [f"{value:.4f}" for value in first.evaluation.means.values()]
    for by_measure in by_run:
        for each in by_measure.values():
            figures += [f"{each.difference:+.4f}", f"{each.high:+.4f}"]
            figures += [shown(each.p_value, P_VALUE), str(each.worse)]
    assert [each for each in figures if words.count(each) < figures.count(each)] == []
    assert "…" not in " ".join(words)


def test_table_becomes_blocks_if_it_does_not_fit():
    rows = [["nDCG@10", "0.3353", "+0.0123"], ["AP", "0.1", "-0.2"]]
    wide, narrow = _console(40), _console(20)
    for console in (wide, narrow):
        print_table(["measure", "baseline", "difference"], rows, console)
    header, _, *lines = _printed(wide)
    assert header.split() == ["measure", "baseline", "difference"]
    assert [line.split() for line in lines] == rows
    assert [line.rstrip() for line in _printed(narrow)] == [
        "nDCG@10",
        "  baseline    0.3353",
        "  difference  +0.0123",
        "AP",
        "  baseline    0.1",
        "  difference  -0.2",
    ]


def test_comparison_fits_into_80_columns():
    header = ["measure", "baseline", "difference", "95 % interval", "p", "better", "equal", "worse"]
    console = _console(80)
    print_table(
        header,
        [["nDCG@10", "0.3353", "+0.0123", "-0.0123 to +0.0123", "1.1e-08", "1234", "43", "6"]],
        console,
    )
    assert len(_printed(console)) == 3


def test_training_plan_fits_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "12")
    plan = {
        "kind": "mono",
        "objective": {"pointwise": 1.0},
        "parameters": 109_483_778,
        "epochs": None,
        "seconds": 1234567.5,
        "notes": ["one", "two"],
    }
    train._show(plan, as_json=False)
    shown = capsys.readouterr().out
    for value in ("109,483,778", "1,234,567.500", "pointwise x 1", "one", "two"):
        assert f" {value}\n" in shown


def test_result_in_a_pipe_is_one_line_a_row(capsys):
    print_result(
        Table([Column("query_id"), Column("text")], [["q1", "two\nlines\tand a tab"]]), {}, "table"
    )
    assert capsys.readouterr().out == "query_id\ttext\nq1\ttwo lines and a tab\n"

"""`--fix` writes what has one right answer: the fixed run is clean, and an evaluation reads the
same order.
"""

import shutil
from pathlib import Path

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import BeamrankError, ConfigError
from beamrank.formats.runs import read_run
from beamrank.storage.streams import open_stream, packed
from contrib.lint.fix import check_fixable, fix_run
from contrib.lint.linter import lint_run
from contrib.lint.registry import CHECKS
from tests.contrib.lint.broken_runs import ALSO, BROKEN, GOOD, lint_broken


def _ranking(path):
    return dict(sorted(read_run(path).order.items()))


@pytest.mark.parametrize("code", [code for code, check in CHECKS.items() if check.fix])
def test_fixed_run_is_clean_and_ranks_as_before(tmp_path, code):
    report = lint_broken(code, tmp_path)
    readable = code not in ("L402", "L501")
    before = _ranking(report.run) if readable else None
    after, fix = fix_run(report)
    assert (after.findings.counts, fix.refused) == ({}, "")
    assert fix.fixed[code] == report.findings.counts[code]
    assert before in (None, _ranking(report.run))
    assert fix.removed == (code == "L402")
    assert lint_run(report.run).findings.counts == {}


@pytest.mark.parametrize("code", [code for code, check in CHECKS.items() if check.blocks_fix])
def test_run_with_an_unreadable_row_is_not_fixed(tmp_path, code):
    content = BROKEN[code][0]
    assert isinstance(content, str)
    path = tmp_path / "some.run"
    path.write_bytes(f"{content}\n".encode())
    report = lint_run(str(path))
    after, fix = fix_run(report)
    assert after is report
    assert code in fix.refused
    assert path.read_bytes().decode() == f"{content}\n"


@pytest.mark.parametrize(
    "code", [code for code, check in CHECKS.items() if not (check.fix or check.blocks_fix)]
)
def test_run_without_a_right_answer_is_not_fixed(tmp_path, code):
    report = lint_broken(code, tmp_path)
    content = Path(report.run).read_bytes()
    fix_run(report)
    expected = lint_run(report.run, report.state.references, report.state.track)
    assert code in expected.findings.counts
    assert Path(report.run).read_bytes() == content or ALSO.get(code)


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_fixed_run_keeps_its_compression_and_its_comments(write, tmp_path, ending):
    content = f"# one\n{GOOD}# two\n".replace("\n", "\r\n").encode()
    path = write(b"".join(packed(f"a{ending}", [content])), f"a.run{ending}")
    assert fix_run(lint_run(path))[0].findings.counts == {}
    with open_stream(path) as file:
        assert file.read().decode() == f"# one\n# two\n{GOOD}"


@pytest.mark.data
def test_fixed_run_has_the_measures_of_the_original_in_trec_eval(shared_data, tmp_path):
    with open(shared_data / "trec_eval/qrels.test") as file:
        evaluator = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(file), {"map", "recip_rank", "ndcg", "P"}
        )
    path = tmp_path / "results.test"
    shutil.copyfile(shared_data / "trec_eval/results.test", path)
    before = evaluator.evaluate(pytrec_eval.parse_run(path.read_text().splitlines()))
    after, _ = fix_run(lint_run(str(path)))
    assert after.findings.counts == {}
    assert evaluator.evaluate(pytrec_eval.parse_run(path.read_text().splitlines())) == before


def test_equal_ranks_of_a_run_without_scores_are_not_fixed(write):
    path = write("1\ta\t1\n1\tb\t1\n")
    report = lint_run(path)
    assert fix_run(report)[0] is report
    path = write("1\ta\t1\r\n1\tb\t1\r\n")
    after, fix = fix_run(lint_run(path))
    assert after.findings.counts == {"L504": 1}
    assert fix.fixed == {"L105": 2}
    assert Path(path).read_text() == "1\ta\t1\n1\tb\t1\n"


def test_scores_that_do_not_tie_keep_their_digits(write):
    path = write(
        "1 Q0 a 1 3.50 t\n1 Q0 b 2 2.50 t\n1 Q0 c 3 2.5 t\n1 Q0 d 4 1.10 t\n2 Q0 a 1 7.0 t\n"
    )
    fix_run(lint_run(path))
    assert Path(path).read_text() == (
        "1 Q0 a 1 3.50 t\n1 Q0 c 2 2.5 t\n1 Q0 b 3 2.49998999 t\n1 Q0 d 4 1.10 t\n2 Q0 a 1 7.0 t\n"
    )


_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "ü"]),
        st.sampled_from("abcd"),
        st.integers(-2, 5),
        st.sampled_from(["1", "1.0", "2", "1.00000001", "1e30", "-3.5"]),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[:2],
)


@settings(max_examples=50, deadline=None)
@given(
    rows=_ROWS,
    separator=st.sampled_from([" ", "\t", "  "]),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_any_readable_run_ranks_the_same_after_a_fix(tmp_path_factory, rows, separator, end):
    path = tmp_path_factory.mktemp("runs") / "a.run"
    lines = [
        separator.join([query, "Q1", doc, str(rank), score, "t"])
        for query, doc, rank, score in rows
    ]
    path.write_text("".join(line + end for line in lines))
    before = _ranking(str(path))
    after, _ = fix_run(lint_run(str(path)))
    assert _ranking(str(path)) == before
    assert {code for code in after.findings.counts if CHECKS[code].fix} <= {
        "L503",
        "L502",
        "L504",
        "L505",
        "L506",
    }
    if "L801" not in after.findings.counts:
        assert not any(CHECKS[code].fix for code in after.findings.counts)


def test_fixed_file_keeps_its_permissions_and_its_link(write, tmp_path):
    path = Path(write(GOOD.replace("\n", "\r\n")))
    path.chmod(0o640)
    link = tmp_path / "link.run"
    link.symlink_to(path)
    fix_run(lint_run(str(link)))
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == (GOOD, 0o640)


@pytest.mark.parametrize(
    ("changed", "message"),
    [(GOOD.replace("1.5 t", "1.5"), r"some\.run:3 "), (GOOD + GOOD, r"some\.run ")],
)
def test_file_that_changes_before_it_is_fixed_is_left_as_it_is(write, changed, message):
    path = Path(write(GOOD.replace("\n", "\r\n")))
    report = lint_run(str(path))
    path.write_text(changed)
    with pytest.raises(BeamrankError, match=message):
        fix_run(report)
    assert path.read_text() == changed


def test_scores_that_cannot_be_lowered_are_left_as_they_are(write):
    path = Path(write("1 Q0 a 1 1 t\n1 Q0 b 2 -3.4028234e38 t\n1 Q0 c 3 -3.4028234e38 t\n"))
    before = path.read_text()
    with pytest.raises(BeamrankError, match=r"-3\.4"):
        fix_run(lint_run(str(path)))
    assert path.read_text() == before


@pytest.mark.parametrize("name", ["run.tar.gz", "run.tgz", "run.Z"])
def test_fix_of_a_run_that_cannot_be_packed_again_is_refused(name):
    with pytest.raises(ConfigError, match=rf"{name}, .*(tar|compress)"):
        check_fixable(name)

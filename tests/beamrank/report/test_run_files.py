"""The report of run files of any systems: what needs no stored scores, against the evaluator."""

import pytest

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.evaluate import evaluate_run_files
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.report.page import report_part, write_report
from beamrank.report.report import ReportSettings, gather_files

MEASURES = ["nDCG@3", "AP"]
RUNS = {
    "first.trec": {"q1": "abcde", "q2": "abcde", "q3": "abcde", "q9": "abc"},
    "second.trec": {"q1": "edcba", "q2": "bacde", "q3": "abcde", "q9": "cab"},
    "third.tsv": {"q1": "ea", "q2": "fb"},
}


@pytest.fixture
def files(tmp_path):
    for name, topics in RUNS.items():
        lines = [
            f"{query_id}\t{doc}\t{rank}"
            if name.endswith("tsv")
            else f"{query_id} Q0 {doc} {rank} {20 - rank} them"
            for query_id, docs in topics.items()
            for rank, doc in enumerate(docs, 1)
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "qrels.txt").write_text("q1 0 a 2\nq1 0 e 1\nq2 0 b 1\nq2 0 c 0\nq3 0 e 1\n")
    return [str(tmp_path / name) for name in RUNS]


def _gather(files, qrels=True, **settings):
    folder = files[0].rpartition("/")[0]
    return gather_files(
        files, f"{folder}/qrels.txt" if qrels else None, MEASURES, ReportSettings(**settings)
    )


def test_measures_are_those_of_eval(files, tmp_path):
    found = _gather(files)
    expected = evaluate_run_files(files, str(tmp_path / "qrels.txt"), MEASURES)
    assert list(found.evaluations) == list(RUNS)
    assert list(found.evaluations.values()) == [each.evaluation for each in expected]
    assert {each.run for each in found.tested} == {"second.trec", "third.tsv"}


def test_rank_changes_are_those_from_the_baseline(files, tmp_path):
    found = _gather(files, baseline="second.trec")
    relevance, runs = read_qrels(str(tmp_path / "qrels.txt")).relevance, {}
    for name, path in zip(RUNS, files, strict=True):
        runs[name] = {
            query: {doc: rank for rank, doc in enumerate(docs, 1)}
            for query, docs in read_run(path).order.items()
        }
    for other in ("first.trec", "third.tsv"):
        expected = [
            runs["second.trec"][query][doc] - runs[other][query][doc]
            for query, judged in relevance.items()
            for doc in judged
            if doc in runs["second.trec"].get(query, {}) and doc in runs[other].get(query, {})
        ]
        changes = [each for each in found.changes if each.after == other]
        assert {each.before for each in changes} == {"second.trec"}
        assert sorted(abs(each.places) for each in changes) == sorted(
            abs(places) for places in expected if places
        )


def test_query_has_the_docs_of_all_runs_side_by_side(files):
    views = _gather(files).views["q2"]
    # Those of the last run first; c and d are in the others alone.
    assert [view.doc_id for view in views] == ["f", "b", "a", "c", "d", "e"]
    assert views[1].ranks == {"third.tsv": 2, "second.trec": 1, "first.trec": 2}
    assert views[1].label == 1
    assert "third.tsv" not in views[2].ranks


def test_page_shows_what_it_can_and_why_not_the_rest(files, tmp_path):
    write_report(str(tmp_path / "page"), [report_part(_gather(files))])
    page = (tmp_path / "page/report.html").read_text()
    assert "These are run files: curves, costs, truncation and passages" in page
    for title in ("What ran", "Measures", "Queries", "Largest rank changes", "Scores"):
        assert f">{title}</h2>" in page
    for title in ("Effectiveness against inferences", "Machines and settings"):
        assert f">{title}</h2>" not in page
    assert (tmp_path / "page/differences.svg").exists()
    assert not (tmp_path / "page/curves.csv").exists()


def test_runs_without_qrels_show_their_rankings(files):
    found = _gather(files, qrels=False)
    assert not found.evaluations
    assert not found.changes
    assert list(found.views) == ["q1", "q2", "q3", "q9"]
    assert [line for line in found.missing if line.startswith("No qrels are given")]


def test_one_run_of_one_topic_with_constant_scores_has_a_report(tmp_path):
    (tmp_path / "run.trec").write_text(
        "".join(f"q1 Q0 {doc} {rank} 1.0 flat\n" for rank, doc in enumerate("abc", 1))
    )
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\n")
    found = gather_files(
        [str(tmp_path / "run.trec")], str(tmp_path / "qrels.txt"), MEASURES, ReportSettings()
    )
    assert not found.tested
    write_report(str(tmp_path / "page"), [report_part(found)])
    assert (tmp_path / "page/scores-1.svg").exists()


def test_wrong_baseline_and_qrels_of_other_topics_are_errors(files, tmp_path):
    with pytest.raises(ConfigError, match=r"is not a run of these files; its runs are first\.trec"):
        _gather(files, baseline="fourth.trec")
    (tmp_path / "qrels.txt").write_text("other 0 a 1\n")
    with pytest.raises(PreflightError, match="no topic in common"):
        _gather(files)


def test_name_of_a_file_that_is_not_utf8_is_escaped_in_all_files(files, tmp_path):
    odd = tmp_path / b"odd\xff<b>.trec".decode("utf-8", "surrogateescape")
    odd.write_bytes((tmp_path / "second.trec").read_bytes())
    write_report(
        str(tmp_path / "page"), [report_part(_gather([files[0], str(odd)], baseline=odd.name))]
    )
    written = {path.suffix: path.read_bytes().decode() for path in (tmp_path / "page").iterdir()}
    assert "odd\\udcff&lt;b>.trec" in written[".html"].replace("&gt;", ">")
    assert "| odd\\\\udcff&lt;b>.trec |" in written[".md"]
    assert r"odd\textbackslash{}udcff<b>.trec &" in written[".tex"]
    assert "odd\\udcff" in (tmp_path / "page" / "scores-2.svg").read_text()

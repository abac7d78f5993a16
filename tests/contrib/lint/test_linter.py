"""One broken run for each check: the check finds it on its line, and finds nothing else."""

import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import PreflightError
from beamrank.formats.run_writer import write_run
from beamrank.formats.runs import read_run
from contrib.lint.check import TRACKS, Check
from contrib.lint.fix import fix_run
from contrib.lint.linter import EXAMPLES, lint_run
from contrib.lint.references import References, read_references
from contrib.lint.registry import CHECKS, TOPIC_CHECKS
from tests.contrib.lint.broken_runs import ALSO, BROKEN, GIVEN, GOOD, MSMARCO, lint_broken
from tests.support.refusals import refuses


def _codes(report):
    return set(report.findings.counts)


def test_every_check_has_a_broken_run():
    assert list(BROKEN) == sorted(CHECKS)


@pytest.mark.parametrize("code", BROKEN)
def test_check_finds_its_broken_run(tmp_path, code):
    report = lint_broken(code, tmp_path)
    findings = [finding for finding in report.findings.examples if finding.code == code]
    assert [finding.line for finding in findings] == [BROKEN[code][1]]
    assert _codes(report) == {code} | ALSO.get(code, set())
    assert re.fullmatch(r"[^\n]{8,300}", findings[0].message)


@pytest.mark.parametrize(
    "content", [GOOD, MSMARCO, GOOD.replace(" ", "\t"), MSMARCO.replace("\t", " "), f"# x\n{GOOD}"]
)
@pytest.mark.parametrize("option", ["none", *sorted({option for option, _ in GIVEN.values()})])
def test_good_run_is_clean(write, content, option):
    files = dict(GIVEN.values())
    files["first_stage"] = content
    files["qrels"] = files["qrels"].replace("1 0 7 1\n", "")
    references = (
        References()
        if option == "none"
        else read_references(**{option: write(files[option], option)})
    )
    assert lint_run(write(content), references).findings.examples == []


def _rows(count, docs):
    return "".join(
        f"{query} Q0 {doc_id} {rank} {9 - rank} t\n"
        for query in range(count)
        for rank, doc_id in docs(query)
    )


def test_one_match_with_the_qrels_does_not_silence_the_rest(write):
    """Ids of another collection meet by chance."""
    qrels = write("".join(f"{query} 0 {query} 1\n" for query in range(30)), "qrels")
    run = write(_rows(30, lambda query: [(1, f"d{query}"), (2, "5" if query == 5 else "x")]))
    report = lint_run(run, read_references(qrels=qrels))
    assert report.findings.counts["L905"] == 1
    assert report.state.judged_at_10
    run = write(_rows(30, lambda query: [(1, f"d{query}"), (2, f"{query}" if query < 2 else "x")]))
    assert "L905" not in lint_run(run, read_references(qrels=qrels)).findings.counts


@pytest.mark.parametrize("bad", ["nan", "x", "inf"])
def test_score_that_is_no_number_silences_no_other_check(write, bad):
    rows = [("a", 1, "5"), ("b", 2, bad), ("c", 3, "4"), ("d", 4, "4"), ("e", 5, "6")]
    content = "".join(f"1 Q0 {doc_id} {rank} {score} t\n" for doc_id, rank, score in rows)
    findings = lint_run(write(content)).findings
    expected = {"L601"} if bad == "x" else {"L602"}
    assert set(findings.counts) == expected | {"L603", "L505"}
    assert {finding.code: finding.line for finding in findings.examples}["L505"] == 5
    constant = "".join(
        f"1 Q0 {doc_id} {rank} {score} t\n" for doc_id, rank, score in [*rows[1:4], ("f", 5, "4")]
    )
    assert set(lint_run(write(constant)).findings.counts) - {"L502"} == expected | {"L801"}
    alone = lint_run(write(f"1 Q0 b 1 {bad} t\n"))
    assert set(alone.findings.counts) == expected


@pytest.mark.parametrize("track", ["msmarco", "trec-dl"])
def test_tracks_accept_the_ids_of_every_version_of_ms_marco(write, track):
    ids = [
        "7130104",
        "D59219",
        "msmarco_passage_00_0",
        "msmarco_passage_69_159748",
        "msmarco_doc_59_863449#3",
    ]
    ids += [
        "msmarco_doc_00_0",
        "msmarco_v2.1_doc_00_0",
        "msmarco_v2.1_doc_00_0#0_0",
        "msmarco_v2.1_doc_59_9#12_24",
    ]
    rows = "".join(f"1 Q0 {doc_id} {rank} {-rank} t\n" for rank, doc_id in enumerate(ids, 1))
    assert lint_run(write(rows), track=TRACKS[track]).findings.examples == []
    for wrong in (
        "msmarco_v2.1_passage_00_0",
        "msmarco_v2x1_doc_00_0",
        "msmarco_doc_00_0#",
        "msmarco_passage_00_0#0",
    ):
        assert (
            "L404" in lint_run(write(f"1 Q0 {wrong} 1 3 t\n"), track=TRACKS[track]).findings.counts
        )


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_topic_that_returns_is_checked_as_a_whole(write, ending):
    rows = [
        f"{query} Q0 d{query + rank} {rank} {-rank} t\n"
        for rank in range(1, 30)
        for query in range(500)
    ]
    content = "".join(rows).encode()
    clean = lint_run(write(gzip.compress(content) if ending else content, f"x{ending}"))
    assert clean.findings.counts == {"L303": 28 * 500}
    assert [finding.line for finding in clean.findings.examples] == [501, 502, 503, 504, 505]
    broken = content.replace(b"\n499 Q0 d528 29 ", b"\n499 Q0 d500 29 ")
    findings = lint_run(write(gzip.compress(broken) if ending else broken, f"x{ending}"))
    assert findings.findings.counts == clean.findings.counts | {"L401": 1}
    assert (
        findings.findings.examples[-1].message == "query '499' has doc 'd500' already on line 500"
    )


def test_examples_of_a_code_are_the_first_ones(write):
    findings = lint_run(write(GOOD.replace("\n", "\r\n") * 4)).findings
    assert findings.counts["L105"] == 20
    assert [finding.line for finding in findings.examples if finding.code == "L105"] == list(
        range(1, EXAMPLES + 1)
    )
    assert ("L105", 20 - EXAMPLES) in findings.left_out()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(GOOD.encode(), mtime=0), "packed"),
        (None, "no-file"),
        (b"PK\x03\x04", "packed"),
    ],
)
def test_file_that_cannot_be_read_is_refused(write, tmp_path, content, kind):
    with refuses(PreflightError, kind):
        lint_run(str(tmp_path / "none") if content is None else write(content))


@pytest.mark.parametrize(
    "content", [bytes(range(256)) * 500, b"\0" * 3_000_000, b"\r\r\r", b"\xff" * 99, b"# only\n"]
)
def test_binary_file_has_findings_and_no_rows(write, content):
    report = lint_run(write(content))
    assert "L112" in report.findings.counts
    assert fix_run(report)[1].fixed == {}


def test_another_check_is_one_function_and_one_entry(write, monkeypatch):
    def short_id(topic, _run):
        yield from (
            (topic.lines[i], "short") for i, doc_id in enumerate(topic.doc_ids) if doc_id == b"c"
        )

    monkeypatch.setitem(
        TOPIC_CHECKS, "X1", Check(short_id, "error", "a short doc_id", blocks_fix=True)
    )
    report = lint_run(write(GOOD.replace("2.5", "2.5\t")))
    assert report.findings.counts == {"X1": 1, "L108": 1}
    assert "X1" in fix_run(report)[1].refused


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "1\tone\n2\ttwo\n"),
        ("a.jsonl", '{"id": "1", "text": "one"}\n{"id": "2", "text": "two"}\n'),
        ("queries.jsonl", '{"_id": "1", "text": "one"}\n{"_id": "2", "text": "two"}\n'),
        ("a.txt", "<top>\n<num>Number: 1\n<title>one\n</top>\n<top>\n<num>2\n<title>two\n</top>\n"),
        ("list", "1\n2\n"),
    ],
)
def test_topics_of_every_format_are_read(write, name, content):
    assert read_references(topics=write(content, name)).topics == {b"1", b"2"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "a\tone\nb\ttwo\nc\tthree\n"),
        (
            "a.jsonl",
            '{"id": "a", "contents": ""}\n{"id": "b", "contents": ""}\n{"id": "c", "contents": '
            '""}\n',
        ),
        ("b.jsonl", '{"id": "a", "text": ""}\n{"id": "b", "text": ""}\n{"id": "c", "text": ""}\n'),
        (
            "corpus.jsonl",
            '{"_id": "a", "text": ""}\n{"_id": "b", "text": ""}\n{"_id": "c", "text": ""}\n',
        ),
        ("list.gz", gzip.compress(b"a\nb\nc\n", mtime=0)),
    ],
)
def test_corpus_of_every_format_is_read(write, name, content):
    references = read_references(corpus=write(content, name))
    assert lint_run(write(GOOD), references).findings.counts == {}
    assert lint_run(write(GOOD.replace("Q0 a", "Q0 z")), references).findings.counts == {"L405": 2}


_SCORES = st.lists(
    st.sampled_from([0.0, 1.0, 1.0 + 1e-9, 2.5, -3.0, 1e30, 5e-324]), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(topics=st.lists(_SCORES, min_size=1, max_size=4), form=st.sampled_from(["trec", "msmarco"]))
def test_what_write_run_writes_is_clean(tmp_path_factory, topics, form):
    path = str(tmp_path_factory.mktemp("runs") / "a.run")
    ranking = {
        f"q{n}": [(f"d{n}-{i}", score) for i, score in enumerate(sorted(scores)[::-1])]
        for n, scores in enumerate(topics)
    }
    write_run(path, ranking, "t", form)
    assert lint_run(path).findings.examples == []


_PIECES = [
    " ",
    "\t",
    "\r",
    "\n",
    "\0",
    "#",
    ".",
    "_",
    "-",
    "e9",
    "1",
    "nan",
    "a",
    "\ufeff",
    "\u00a0",
    "1 Q0 a 1 3.5 t\n",
]


@settings(max_examples=100, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 9), st.sampled_from(_PIECES)), max_size=3
    )
)
def test_run_without_errors_is_readable_and_one_with_lost_rows_is_not(tmp_path_factory, edits):
    path = tmp_path_factory.mktemp("runs") / "a.run"
    content = GOOD
    for at, removed, piece in edits:
        content = content[:at] + piece + content[at + removed :]
    path.write_bytes(content.encode())
    report = lint_run(str(path))
    try:
        read_run(str(path))
    except PreflightError:
        assert report.count("error")
    else:
        assert [code for code in report.findings.counts if CHECKS[code].blocks_fix] == []


@pytest.mark.data
@pytest.mark.parametrize(
    ("run", "codes"),
    [
        ("cacm/cacm-bm25.txt", set()),
        ("msmarco/pyserini_run_fragment/run.msmarco-passage.txt", set()),
        ("msmarco/ans_small/run.dev.small.tsv.gz", set()),
        ("msmarco/ans_small/run.monobert.ans_small.dev.tsv.gz", set()),
        ("trec_eval/results.comment.test.gz", {"L603"}),
        ("trec_eval/results.test", {"L108", "L506", "L603"}),
        ("trec_eval/results.trunc", {"L101", "L108", "L303", "L502", "L503", "L506", "L603"}),
        ("trec_eval/zscores_file.gz", {"L101", "L112"}),
    ],
)
def test_real_run_has_its_findings(shared_data, run, codes):
    assert _codes(lint_run(str(shared_data / run))) == codes


def test_doc_that_differs_from_a_judged_one_in_case_is_another_doc(tmp_path):
    (tmp_path / "run").write_text("1 Q0 Timeout 1 3 t\n1 Q0 b 2 2 t\n")
    (tmp_path / "qrels").write_text("1 0 timeout 1\n1 0 b 1\n")
    assert (
        _codes(lint_run(str(tmp_path / "run"), read_references(qrels=str(tmp_path / "qrels"))))
        == set()
    )


@pytest.mark.data
def test_unpadded_judgments_of_cacm_are_found(shared_data):
    folder = shared_data / "cacm"
    references = read_references(
        qrels=str(folder / "qrels.cacm.txt"), topics=str(folder / "topics.cacm.txt")
    )
    report = lint_run(str(folder / "cacm-bm25.txt"), references)
    assert _codes(report) == {"L906"}
    first = next(iter(report.findings.examples)).message
    assert re.fullmatch(r"doc 'CACM-0\d+' of query '\d+' is not judged, but 'CACM-\d+' is", first)


@pytest.mark.data
def test_reranked_run_of_msmarco_agrees_with_its_files(shared_data):
    folder = shared_data / "msmarco/ans_small"
    first_stage = str(folder / "run.dev.small.tsv.gz")
    topics, qrels = str(folder / "queries.dev.small.tsv"), str(folder / "qrels.dev.small.tsv")
    references = read_references(topics=topics, qrels=qrels, first_stage=first_stage)
    report = lint_run(
        str(folder / "run.monobert.ans_small.dev.tsv.gz"), references, TRACKS["msmarco"]
    )
    assert report.findings.counts == {}
    assert report.state.judged_at_10 is not None

"""What a configuration, an option or a caller says about files: format, columns, quotes."""

from pathlib import Path
from typing import Any

import pytest

import beamrank
from beamrank.config.stages import CandidatesConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.columns import (
    DocColumns,
    QrelsColumns,
    RunColumns,
    TopicColumns,
    hints_of,
)
from beamrank.formats.corpora import (
    CorpusConfig,
    corpus_files,
    digest_corpus,
    list_units,
    notes,
    read_unit,
    resolved,
)
from beamrank.formats.qrels import QrelsConfig, read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from pipelines.commands.arguments import file_hints
from tests.support.refusals import refuses

QUOTED = 'id\ttext\n1\t"The ""Aurora"", a\nferry."\n2\tplain\n'


def _write(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def _docs(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[tuple[str, str]]:
    batches = [batch for unit in list_units(corpus, unit_bytes) for batch in read_unit(unit)]
    return [row for each in batches for row in zip(each.doc_ids, each.texts, strict=True)]


def test_quotes_of_a_tsv_are_part_of_it_unless_the_configuration_says_so(tmp_path):
    plain = resolved(CorpusConfig(path=_write(tmp_path / "d.tsv", 'id\ttext\n1\t"a ""b"""\n')))
    quoted = plain.model_copy(update={"quotes": True})
    assert _docs(plain) == [("1", '"a ""b"""')]
    assert _docs(quoted) == [("1", 'a "b"')]
    assert [note for note in notes(plain) if "begin and end with a quote" in note]
    assert not [note for note in notes(quoted) if "begin and end with a quote" in note]
    assert digest_corpus(plain).digest != digest_corpus(quoted).digest


def test_quoted_rows_of_several_lines_are_read_whole_in_units_of_any_size(tmp_path):
    corpus = CorpusConfig(path=_write(tmp_path / "d.tsv", QUOTED), quotes=True)
    assert _docs(corpus, 5) == [("1", 'The "Aurora", a\nferry.'), ("2", "plain")]
    assert corpus_files(corpus) == [str(tmp_path / "d.tsv")]


def test_quotes_mean_nothing_to_other_formats(tmp_path):
    path = _write(tmp_path / "d.csv", "id,text\n1,a\n")
    with pytest.raises(PreflightError, match=r"`corpus\.quotes` .*csv"):
        list_units(CorpusConfig(path=path, quotes=True))


def test_numbers_are_columns_of_files_without_a_header(tmp_path):
    docs = _write(tmp_path / "d.tsv", "x\tfirst\td1\ny\tsecond\td2\n")
    columns = DocColumns(doc_id=3, text=2)
    corpus = CorpusConfig(path=docs, format="tsv", columns=columns, header=False)
    assert _docs(corpus) == [("d1", "first"), ("d2", "second")]
    topics = TopicsConfig(
        path=_write(tmp_path / "t.tsv", "one\tx\tq1\n"),
        format="tsv",
        columns=TopicColumns(query_id=3, text=1),
    )
    assert list(read_topics(topics)) == [("q1", "one")]
    # ADI.REL: a query, a doc, and two zeros.
    qrels = _write(tmp_path / "ADI.REL", "1 17 1 0.000000\n2 22 1 0.000000\n")
    named = QrelsConfig(path=qrels, columns=QrelsColumns(query_id=1, doc_id=2, relevance=3))
    assert read_qrels(named).relevance == {"1": {"17": 1}, "2": {"22": 1}}
    assert beamrank.read_qrels(qrels, columns={"query_id": 1, "doc_id": 2, "relevance": 3}) == {
        "1": {"17": 1},
        "2": {"22": 1},
    }


@pytest.mark.parametrize("columns", [{"query_id": 1, "doc_id": 9}, {"doc_id": 1}])
def test_numbers_that_a_file_does_not_have_are_refused(tmp_path, columns):
    path = _write(tmp_path / "q", "1 0 17 1\n")
    with refuses(PreflightError, "column-missing"):
        beamrank.read_qrels(path, columns=columns)


def test_numbers_of_columns_that_have_names_are_refused(tmp_path):
    path = _write(tmp_path / "q.csv", "qid,docno,rel\n1,a,1\n")
    with refuses(PreflightError, "column-missing"):
        beamrank.read_qrels(path, columns={"query_id": 1, "doc_id": 2, "relevance": 3})


def test_a_named_format_reads_what_is_not_recognized(tmp_path):
    lotte = _write(tmp_path / "qas.jsonl", '{"qid": 0, "query": "x", "answer_pids": [17, 4]}\n')
    with pytest.raises(PreflightError, match="answer_pids"):
        beamrank.read_qrels(lotte)
    assert beamrank.read_qrels(lotte, format="lotte") == {"0": {"17": 1, "4": 1}}
    config = QrelsConfig(path=lotte, format="lotte")
    assert read_qrels(config).relevance == {"0": {"17": 1, "4": 1}}
    csv = _write(tmp_path / "run", 'qid,docno,score\n"1","a",2\n')
    assert beamrank.read_run(csv, format="csv") == {"1": {"a": 2.0}}
    with pytest.raises(PreflightError):
        beamrank.read_run(csv, format="tsv")


def test_a_run_as_candidates_has_these_keys(tmp_path):
    path = _write(tmp_path / "run.tsv", 'q\td\ts\n"1"\t"a"\t2\n')
    section = CandidatesConfig(
        run=path,
        k=1,
        format="tsv",
        quotes=True,
        columns=RunColumns(query_id="q", doc_id="d", score="s"),
    )
    assert read_run(path, hints=hints_of(section)).to_dict() == {"1": {"a": 2.0}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "excel"}, r"'excel' .*auto, tsv, csv, json"),
        ({"columns": {"relevance": "x"}}, "'relevance'"),
    ],
)
def test_what_no_run_has_is_refused(tmp_path, given: dict[str, Any], message):
    with pytest.raises(ConfigError, match=message):
        beamrank.read_run(tmp_path / "run", **given)


def test_options_are_for_runs_for_qrels_or_for_both():
    hints = file_hints("csv", "lotte", "query_id=q, run.doc_id=2,qrels.doc_id=pid,relevance=stars")
    assert hints.run.columns == {"query_id": "q", "doc_id": 2}
    assert hints.qrels.columns == {"query_id": "q", "doc_id": "pid", "relevance": "stars"}
    assert (hints.run.format, hints.qrels.format) == ("csv", "lotte")


@pytest.mark.parametrize("columns", ["doc_id", "title=x", "run.relevance=x", "topics.query_id=q"])
def test_options_that_mean_nothing_are_refused(columns):
    with pytest.raises(ConfigError, match="a meaning"):
        file_hints(columns=columns)

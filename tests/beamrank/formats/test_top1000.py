"""MS MARCO's top1000 files as topics, corpus and candidates."""

import re

import pytest

from beamrank.errors import PreflightError
from beamrank.formats.candidates import read_candidates
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.files import Beginning
from beamrank.formats.runs import read_run
from beamrank.formats.texts.top1000 import is_top1000
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import COMPRESSORS, corpus_of, each_compression

# As the released file is: unranked, the lines of a query apart, passages that repeat, one broken line.
LINES = [
    "188714\t1000052\tfoods and supplements to lower blood sugar\tWatch portion sizes: Ã© Itâ€™s so.",
    "1082792\t1000084\twhat does the golgi apparatus do\tStart your trial\u00a0now.",
    "188714\t1000094\tfoods and supplements to lower blood sugar\tLower BPM results",
    "broken\tline",
    "1082792\t1000052\twhat does the golgi apparatus do\tWatch portion sizes: é It’s so.",
]


@pytest.fixture
def url(tmp_path):
    (tmp_path / "top1000.dev.tsv").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return str(tmp_path / "top1000.dev.tsv")


def test_top1000_is_topics_corpus_and_candidates(url):
    assert read_topics(TopicsConfig(path=url, format="top1000")) == [
        ("188714", "foods and supplements to lower blood sugar"),
        ("1082792", "what does the golgi apparatus do"),
    ]
    (unit,) = list_units(corpus_of(url, "top1000"))
    (batch,) = read_unit(unit)
    assert batch.doc_ids == ["1000052", "1000084", "1000094", "1000052"]
    assert batch.keys == ["188714 1000052", "1082792 1000084", "188714 1000094", "1082792 1000052"]
    assert batch.texts[3] == "Watch portion sizes: é It’s so."
    (bad,) = batch.bad
    assert bad.reason.startswith("the row has 2 columns where query_id<TAB>doc_id<TAB>query<TAB>passage, exactly 4")
    run = read_candidates(url, "rank", 1)
    assert run.order == {"188714": ["1000052", "1000094"], "1082792": ["1000084", "1000052"]}
    assert run.scores["188714"].tolist() == [-1.0, -2.0]


def test_candidates_note_file_order_broken_lines_and_double_encoding(url):
    unranked, broken, twice = read_candidates(url, "rank", 1).notes.remarks
    assert unranked == "unranked; the order of the file stands for the ranks"
    assert re.match(rf"rows that cannot be used: 1 \(first: {url}:4: the row has 2 columns", broken)
    assert twice.startswith(f"texts that were encoded as UTF-8 twice: 1 (first: {url}:1)")
    with pytest.raises(PreflightError, match=r"1 row of .*, and max_bad_rows is 0\n  .*:4: the row has 2 columns"):
        read_candidates(url, "rank", 0)


@pytest.mark.parametrize(
    "text",
    ["Spaß“ and é", "naïve Â", "café", "10 °C – 5 €", "Ã", "¿Qué?", "a â b"],
)
def test_text_that_was_encoded_once_is_not_counted(tmp_path, text):
    (tmp_path / "top").write_text(f"1\t2\ta longer query of words\t{text}\n", encoding="utf-8")
    assert len(read_candidates(str(tmp_path / "top"), "rank", 0).notes.remarks) == 1


@pytest.mark.parametrize("original", ["é", "°", "’", "“", "–", "€", "Â", "\u00a0"])
@pytest.mark.parametrize("read_as", ["latin-1", "cp1252"])
def test_text_that_was_encoded_twice_is_counted(tmp_path, original, read_as):
    text = original.encode().decode(read_as)
    (tmp_path / "top").write_text(f"1\t2\ta longer query of words\tx {text} y\n", encoding="utf-8")
    assert "encoded as UTF-8 twice: 1 " in read_candidates(str(tmp_path / "top"), "rank", 0).notes.remarks[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("188714\t5\tanother text\tpassage", "line 1"),
        ("7\t5\t \tpassage", "'7' has no text"),
        ("#7\t5\tquery\tpassage", "begins with `#`"),
    ],
    ids=["two texts", "no text", "comment"],
)
def test_topics_with_a_problem_are_refused(url, line, message):
    with open(url, "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(PreflightError, match=rf"1 line of {url} .*\n  {url}:6: .*{message}"):
        read_topics(TopicsConfig(path=url, format="top1000"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"188714\t1000052\tq\tp\n", "query '188714' has doc '1000052' twice: .*:1 and .*:6"),
        (b"188714\t1 2\tq\tp\n", "has the id '1 2', which holds white space"),
        (b"188714\t\xff\tq\tp\n", "not valid UTF-8"),
    ],
    ids=["doc twice", "white space", "not UTF-8"],
)
def test_candidates_with_an_invalid_id_are_refused(url, line, message):
    with open(url, "ab") as file:
        file.write(line)
    with pytest.raises(PreflightError, match=message):
        read_candidates(url, "rank", 1)


@each_compression
def test_top1000_is_recognized_by_its_columns(tmp_path, ending):
    content = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / f"top{ending}").write_bytes(COMPRESSORS[ending](content))
    assert is_top1000(Beginning(str(tmp_path / f"top{ending}")))
    (tmp_path / f"qrels{ending}").write_bytes(COMPRESSORS[ending](b"188714\t0\t1000052\t1\n" * 30))
    assert not is_top1000(Beginning(str(tmp_path / f"qrels{ending}")))


def test_top1000_as_a_run_names_the_remedy(url):
    with pytest.raises(PreflightError, match=r"top1000 files are unranked: give one as `candidates.run`"):
        read_run(url)

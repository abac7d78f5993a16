import gzip
from itertools import islice
from pathlib import Path

import pytest

from beamrank.errors import DataError, PreflightError
from models.training.data.groups import Source
from models.training.data.triple_columns import header_bytes, is_header
from models.training.data.triples import TriplesSource


def take(source: Source, count: int, position: dict[str, int] | None = None):
    return list(islice(source.stream(position or {}), count))


def write_triples(path: Path, count: int = 2500) -> Path:
    lines = [f"query {number}\tpositive {number}\tnegative {number}" for number in range(count)]
    lines[3] = "two\tcolumns"
    lines[1700] = "same\tpassage\tpassage"
    lines[2000] = "\tempty\tquery"
    content = "\n".join(lines).encode() + b"\n\xff\xfe\tnot\tutf-8\n"
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_triples_are_streamed_and_invalid_lines_counted(name, tmp_path):
    source = TriplesSource(str(write_triples(tmp_path / name)), seed=3)
    epoch = take(source, 2497)
    assert len({group.query for group, _ in epoch}) == 2497
    assert all(group.docs[1] == group.docs[0].replace("positive", "negative") for group, _ in epoch)
    assert all(group.relevant == (True, False) for group, _ in epoch)
    assert source.notes({}) == []
    assert source.notes(epoch[10][1]) == [f"invalid lines in {tmp_path / name}: 1; ignored"]
    assert "invalid lines" in source.notes(epoch[-1][1])[0]
    assert ": 4;" in source.notes(epoch[-1][1])[0]
    assert [group.query for group, _ in epoch[:9]] != [f"query {number}" for number in range(9)]


def test_triples_have_another_order_each_epoch(tmp_path):
    source = TriplesSource(str(write_triples(tmp_path / "triples.tsv")), seed=3)
    rows = take(source, 2 * 2497)
    first, second = ([group.query for group, _ in rows[start : start + 2497]] for start in (0, 2497))
    assert sorted(first) == sorted(second)
    assert first != second
    assert source.estimated_triples() == pytest.approx(2501, rel=0.01)


_LABELLED = ["what is it\tit is blue\t0", "what is that\tthat is red\t1", "what was it\tit was gold\t0"]


def moved(order: str) -> list[str]:
    return ["\t".join(line.split("\t")[int(place)] for place in order) for line in _LABELLED]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (_LABELLED, r"column 3 holds only numbers \(0, 1\) in the first 3 lines"),
        (["query\tpassage\tlabel", *_LABELLED], r"column 3 holds only numbers \(0, 1\)"),
        (moved("201"), r"column 1 holds only numbers"),
        (moved("021"), r"column 2 holds only numbers"),
        ([line.replace("\t0", "\t0.25") for line in _LABELLED], r"column 3 holds only numbers \(0\.25, 1\)"),
        (["1000\tD500\tD600", "1001\tD501\tD601"], "holds triples of ids, not of texts: "),
        (["apple\tbanana\tcherry", "apple\tcherry\tdate"], "holds single words, not texts"),
        (["what is it\tD500\tD600", "what is that\tD501\tD601"], r"not of texts \(column 2 and 3\)"),
        (["q1\tit is blue\tit is red", "q2\tit is red\tit is gold"], r"not of texts \(column 1\)"),
    ],
)
def test_triples_refuse_other_columns(lines, message, tmp_path):
    (tmp_path / "other.tsv").write_text("\n".join(lines) + "\n")
    with pytest.raises(PreflightError, match=message):
        TriplesSource(str(tmp_path / "other.tsv"), seed=3)


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("query\tnegative\tpositive", 2),
        ("positive\tquery\tnegative", 1),
        ("Query\tnon-relevant\tRelevant", 2),
        ("qid\tneg_id\tpos_id", 2),
        ("anchor\tpositive\tscore", 3),
        ("good_answer\tbad_answer\tquestion", 1),
    ],
)
def test_header_of_another_order_is_refused(header, column, tmp_path):
    """The model would learn to prefer the passages that are not relevant."""
    (tmp_path / "triples.tsv").write_text(f"{header}\nwhat is it\tit is red\tit is blue\n")
    with pytest.raises(PreflightError, match=f"column {column} is .* by the header"):
        TriplesSource(str(tmp_path / "triples.tsv"), seed=3)


def test_triples_in_another_encoding_are_refused(tmp_path):
    (tmp_path / "triples.tsv").write_bytes("what is it\tit is red\tit is blue\n".encode("utf-16"))
    with pytest.raises(PreflightError, match="UTF-16"):
        TriplesSource(str(tmp_path / "triples.tsv"), seed=3)


def test_byte_order_mark_of_triples_is_no_text(tmp_path):
    (tmp_path / "triples.tsv").write_text("\ufeffwhat is it\tit is red\tit is blue\n")
    assert take(TriplesSource(str(tmp_path / "triples.tsv"), seed=3), 1)[0][0].query == "what is it"


def test_triples_that_contradict_each_other_are_said(tmp_path):
    lines = ["what is it\tblue\tred", "What is it\tgold\t Blue", "what is that\tred\tblue"]
    (tmp_path / "triples.tsv").write_text("\n".join(lines) + "\n")
    (line,) = TriplesSource(str(tmp_path / "triples.tsv"), seed=3).notes({})
    assert ": 1 of the first 3;" in line


@pytest.mark.parametrize(
    "line", ["\u4f60\u597d\t\u4e2d\u56fd1\t\u5317\u4eac2", "what is it\tblue\tred", "q 1\t42\tit is 43"]
)
def test_triples_accept_short_texts(line, tmp_path):
    (tmp_path / "triples.tsv").write_text(f"{line}\nwhat is that\tcovid19 it is\tred\n")
    assert len(take(TriplesSource(str(tmp_path / "triples.tsv"), seed=3), 2)) == 2


@pytest.mark.parametrize(
    "header",
    [
        "query\tpositive\tnegative",
        "Query\tpos_passage\tNeg Passage",
        "qid\tpos_id\tneg_id",
        "q\trelevant\tnon-relevant",
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_header_of_triples_is_left_out(header, ending, tmp_path):
    plain, headed = tmp_path / f"plain.tsv{ending}", tmp_path / f"headed.tsv{ending}"
    text = "".join(f"what is {n}\tit is {n}\tit was {n}\n" for n in range(1200))
    for path, content in ((plain, text), (headed, f"{header}\n{text}")):
        path.write_bytes(gzip.compress(content.encode()) if ending else content.encode())
    one, other = (TriplesSource(str(path), seed=1) for path in (plain, headed))
    groups = take(other, 2500)
    assert [group for group, _ in groups] == [group for group, _ in take(one, 2500)]
    for at in (0, 999, 1000, 1199, 1200):
        assert take(other, 20, groups[at][1]) == groups[at + 1 : at + 21]
    assert other.notes({}) == [f"the first line of {headed} is a header, and is left out"]
    assert one.notes({}) == []


def test_triples_with_one_text_twice_are_left_out(tmp_path):
    lines = [
        "what is it\tit is blue\tIt  IS blue\u200b",
        "what is it\tit is blue\t\u2063",
        "what is it\tit is blue\tred",
    ]
    (tmp_path / "triples.tsv").write_text("\n".join(lines) + "\n")
    source = TriplesSource(str(tmp_path / "triples.tsv"), seed=1, max_bad_rows=0)
    ((group, position),) = take(source, 1)
    assert group.docs == ("it is blue", "red")
    assert ": 2; ignored" in source.notes(position)[0]


def test_triples_have_a_limit_of_broken_lines(tmp_path):
    good, broken = "query {0}\tpositive {0}\tnegative {0}", "query {0}\ta\tb\tc"
    path = tmp_path / "triples.tsv"
    path.write_text("\n".join([good.format(0), *map(broken.format, range(250))]) + "\n")
    with pytest.raises(PreflightError, match=r"250 of 251 lines are not query.* at byte 30: it has 4 columns"):
        TriplesSource(str(path), seed=3)
    assert len(take(TriplesSource(str(path), seed=3, max_bad_rows=250), 3)) == 3
    path.write_text("\n".join([*map(good.format, range(1500)), *map(broken.format, range(50))]) + "\n")
    late = TriplesSource(str(path), seed=3, max_bad_rows=9)
    with pytest.raises(DataError, match=r"10 of 510 lines are not query"):
        take(late, 1501)


def test_triples_of_ids_are_refused(tmp_path):
    """They would be trained on as texts: qidpidtriples.train.full.2.tsv."""
    (tmp_path / "qidpidtriples.tsv").write_text("1000094\t5399011\t4239068\n1000094\t5399011\t1686319\n")
    with pytest.raises(PreflightError, match=r"holds triples of ids, not of texts.*Give data\.corpus and data\.topics"):
        TriplesSource(str(tmp_path / "qidpidtriples.tsv"), seed=3)


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_triples_resume_at_any_position(name, tmp_path):
    source = TriplesSource(str(write_triples(tmp_path / name, 2100)), seed=1)
    whole = take(source, 4500)
    for at in (0, 997, 999, 1000, 1996, 2050, 2096, 2097, 3333):
        assert take(source, 50, whole[at][1]) == whole[at + 1 : at + 51]


def test_triples_refuse_a_file_without_any(tmp_path):
    (tmp_path / "wrong.tsv").write_text("q1 Q0 d1 1 3.0 run\n" * 5)
    with pytest.raises(PreflightError, match="none of its first 5 lines is query<TAB>relevant"):
        TriplesSource(str(tmp_path / "wrong.tsv"), 0)
    with pytest.raises(PreflightError, match=r"missing\.tsv does not exist"):
        TriplesSource(str(tmp_path / "missing.tsv"), 0)


@pytest.mark.parametrize("name", ["docid " * 40 + "!", "qid" * 40 + "!"])
def test_long_name_of_a_column_is_told_at_once(name):
    assert not is_header([name])
    assert is_header([name.removesuffix("!").strip()])


def test_ids_that_look_like_names_are_no_header(tmp_path):
    path = tmp_path / "ids.tsv"
    path.write_text("q1\tdoc12\tdoc7\nq2\tWEB-2\tWEB-11\n")
    assert header_bytes(str(path), ids=True) == 0
    path.write_text("qid\tpos_id\tneg_id\nq2\tWEB-2\tWEB-11\n")
    assert header_bytes(str(path), ids=True) == len("qid\tpos_id\tneg_id\n")

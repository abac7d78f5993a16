import gzip
import json
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from string import ascii_lowercase, digits
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.files import InputFile
from beamrank.formats.schemas import ID_TRIPLES
from models.tokenizers.bert import load_bert
from models.training.config import DataConfig
from models.training.data.groups import Group, GroupSource
from models.training.data.texts import TextWriter
from models.training.data.triples import BLOCK, blocks_of, open_triples, store_triples
from tests.support.refusals import refuses
from tests.support.training import WORDS, save_tokenizer

# Of a text of which no word is known, only the length is.
_VOCABULARY = [*WORDS, ",", *ascii_lowercase, *digits]
_VOCABULARY += [f"##{character}" for character in ascii_lowercase + digits]


class RecordedTexts(TextWriter):
    """Keeps the texts that it writes."""

    def __init__(self, folder: Path) -> None:
        save_tokenizer(folder, _VOCABULARY)
        super().__init__(folder, load_bert(str(folder)), 32)
        self.texts: list[str] = []

    def add(self, texts: Sequence[str], *, empty: bool = True) -> None:
        super().add(texts, empty=empty)
        self.texts += texts


class Read(NamedTuple):
    """Triples that were read from a file; the texts of their groups are those of the file."""

    source: GroupSource
    texts: list[str]
    lines: list[str]

    def take(self, count: int, position: int = 0) -> list[tuple[Group, int]]:
        def texts(group: Group[int]) -> Group:
            docs = tuple(self.texts[row] for row in group.docs)
            return Group(self.texts[group.query], docs, group.relevant)

        return [
            (texts(group), after) for group, after in islice(self.source.stream(position), count)
        ]


def read(path: Path, seed: int = 3, max_bad_rows: int = 100, needed: int | None = None) -> Read:
    """Reads triples of texts."""
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    writer = RecordedTexts(folder)
    data = DataConfig(triples=str(path), max_bad_rows=max_bad_rows)
    arrays, lines = store_triples(data, writer, needed)
    return Read(GroupSource(arrays, seed, block=BLOCK), writer.texts, lines)


def write_triples(path: Path, count: int = 2500) -> Path:
    lines = [f"query {number}\tpositive {number}\tnegative {number}" for number in range(count)]
    lines[3] = "two\tcolumns"
    lines[1700] = "same\tpassage\tpassage"
    lines[2000] = "\tempty\tquery"
    content = "\n".join(lines).encode() + b"\n\xff\xfe\tnot\tutf-8\n"
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_triples_are_read_and_invalid_lines_counted(name, tmp_path):
    found = read(write_triples(tmp_path / name))
    epoch = found.take(2497)
    assert len({group.query for group, _ in epoch}) == found.source.groups_per_epoch == 2497
    assert all(group.docs[1] == group.docs[0].replace("positive", "negative") for group, _ in epoch)
    assert all(group.relevant == (True, False) for group, _ in epoch)
    line = (
        f"rows of {tmp_path / name} that are no triple, have an empty text or one text twice: "
        "4; ignored"
    )
    assert found.lines == [line]
    following = [group.query for group, _ in found.take(2 * 2497)[2497:]]
    assert sorted(following) == sorted(group.query for group, _ in epoch)
    assert following != [group.query for group, _ in epoch]
    # A block of a thousand is shuffled.
    assert [group.query for group, _ in epoch[:9]] != [f"query {number}" for number in range(9)]
    assert {group.query for group, _ in epoch[:1000]} == {
        f"query {number}" for number in range(1001) if number != 3
    }


def test_only_needed_triples_are_read(tmp_path):
    path = write_triples(tmp_path / "triples.tsv", 6000)
    whole, some = read(path), read(path, needed=2000)
    assert some.take(2000) == whole.take(2000)
    assert len(set(some.texts)) == len(some.texts)
    assert len(some.texts) < 3 * 3100
    assert some.source.groups_per_epoch == 2000


_LABELLED = [
    "what is it\tit is blue\t0",
    "what is that\tthat is red\t1",
    "what was it\tit was gold\t0",
]


def moved(order: str) -> list[str]:
    return ["\t".join(line.split("\t")[int(place)] for place in order) for line in _LABELLED]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (_LABELLED, r"column 3 .*\(0, 1\) .*3 rows .*line 3"),
        (["query\tpassage\tlabel", *_LABELLED], r"query, passage, label.*data\.qrels"),
        (["label\ttext_left\ttext_right", *moved("201")], "label, text_left, text_right"),
        ([line.replace("\t0", "\t-") for line in _LABELLED], r"column 3 holds .*\(-, 1\)"),
        (
            [
                line.replace("\t0", "\tNot relevant").replace("\t1", "\tRelevant")
                for line in _LABELLED
            ],
            r"column 3 .*\(Not relevant, Relevant\).*data\.qrels",
        ),
        ([line.replace("\t0", "\tno").replace("\t1", "\tyes") for line in _LABELLED], r"column 3"),
        (moved("201"), "column 1 "),
        (moved("021"), "column 2 "),
        (
            [line.replace("\t0", "\t0.25") for line in _LABELLED],
            r"column 3 .*\(0\.25, 1\)",
        ),
        (
            ["1000\tD500\tD600", "1001\tD501\tD601"],
            r"column 1 and 2 and 3 .*D600, D601.* `data.corpus`",
        ),
        (["apple\tbanana\tcherry", "apple\tcherry\tdate"], "column 1 and 2 and 3 "),
        (["what is it\tD500\tD600", "what is that\tD501\tD601"], "column 2 and 3 "),
        (["q1\tit is blue\tit is red", "q2\tit is red\tit is gold"], "column 1 "),
    ],
)
def test_triples_refuse_other_columns(lines, message, tmp_path):
    (tmp_path / "other.tsv").write_text("\n".join(lines) + "\n")
    with pytest.raises(PreflightError, match=message):
        read(tmp_path / "other.tsv")


@pytest.mark.parametrize(
    "header",
    ["query\tnegative\tpositive", "anchor\tNeg-Passage\tpassage pos", "qid\tneg_id\tpos_id"],
)
def test_columns_of_triples_are_known_by_their_names(header, tmp_path):
    (tmp_path / "triples.tsv").write_text(f"{header}\nwhat is it\tit is red\tit is blue\n")
    ((group, _),) = read(tmp_path / "triples.tsv").take(1)
    assert (group.query, group.docs) == ("what is it", ("it is blue", "it is red"))


@pytest.mark.parametrize(
    "header", ["anchor\tpositive\tscore", "question\tbad_answer\ttitle", "text1\tlabel\ttext2"]
)
def test_header_without_a_column_of_triples_is_refused(header, tmp_path):
    (tmp_path / "triples.tsv").write_text(f"{header}\nwhat is it\tit is red\tit is blue\n")
    with pytest.raises(PreflightError) as error:
        read(tmp_path / "triples.tsv")
    assert error.value.kind == "column-missing"
    assert "data.qrels" in str(error.value)


def texts(name: str, count: int = 4) -> list[str]:
    return [f"{name} {number} is" for number in range(count)]


def triples_of(path: Path) -> set[tuple[str, ...]]:
    found = read(path)
    return {
        (group.query, *group.docs) for group, _ in found.take(found.source.groups_per_epoch or 0)
    }


def test_only_columns_named_as_negatives_are_negatives(tmp_path):
    table = {name: texts(name) for name in ("title", "positive", "dataset", "query", "doc_id")}
    pq.write_table(pa.table({**table, "negative": texts("negative")}), tmp_path / "one.parquet")
    wanted = {(f"query {n} is", f"positive {n} is", f"negative {n} is") for n in range(4)}
    assert triples_of(tmp_path / "one.parquet") == wanted
    several = {"neg_2": texts("second"), "neg_1": [*texts("first", 3), None]}
    pq.write_table(pa.table(table | several), tmp_path / "several.parquet")
    found = triples_of(tmp_path / "several.parquet")
    assert found == {
        (f"query {n} is", f"positive {n} is", f"{name} {n} is")
        for name, count in (("first", 3), ("second", 4))
        for n in range(count)
    }
    rows = pa.table(table | {"negative": texts("negative")}).to_pylist()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert triples_of(tmp_path / "rows.jsonl") == wanted


def test_columns_of_each_part_are_checked(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    names = ("query", "positive", "negative")
    pq.write_table(pa.table({name: texts(name) for name in names}), parts / "0.parquet")
    moved = pa.table({name: texts(name)[::-1] for name in reversed(names)})
    pq.write_table(moved, parts / "1.parquet")
    wanted = {(f"query {n} is", f"positive {n} is", f"negative {n} is") for n in range(4)}
    assert triples_of(parts) == wanted
    pq.write_table(moved.rename_columns(["label", "text", "query"]), parts / "2.parquet")
    with refuses(PreflightError, "column-missing", file=parts / "2.parquet"):
        read(parts)


def test_labels_are_seen_in_the_whole_file(tmp_path):
    good = [f"query {n} is\tpositive {n} is\tnegative {n} is" for n in range(1500)]
    labelled = [f"query {n} is\tpassage {n} is\t{n % 2}" for n in range(1500)]
    path = tmp_path / "triples.tsv"
    for lines in ([*good, *labelled], [*labelled, *good], ["a b\tc d\te f", *labelled]):
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(PreflightError, match="column 3 "):
            read(path)


@pytest.mark.parametrize(
    ("one", "other"),
    [("caf\u00e9 is", "CAFE is"), ("it is , so", "it is, so"), ("it is", "\u0301")],
)
def test_texts_with_the_same_tokens_are_one_and_without_any_are_empty(one, other, tmp_path):
    path = tmp_path / "triples.tsv"
    path.write_text(f"what is\t{one}\t{other}\nwhat is\tthe sky\tthe sea\n")
    found = read(path)
    assert [group.docs for group, _ in found.take(1)] == [("the sky", "the sea")]
    assert found.lines[-1].endswith(": 1; ignored")


def test_triples_in_another_encoding_are_refused(tmp_path):
    (tmp_path / "triples.tsv").write_bytes("what is it\tit is red\tit is blue\n".encode("utf-16"))
    with pytest.raises(PreflightError, match="UTF-16"):
        read(tmp_path / "triples.tsv")
    (tmp_path / "triples.tsv").write_text("\ufeffwhat is it\tit is red\tit is blue\n")
    assert read(tmp_path / "triples.tsv").take(1)[0][0].query == "what is it"


@pytest.mark.parametrize(
    "line",
    ["\u4f60\u597d\t\u4e2d\u56fd1\t\u5317\u4eac2", "what is it\tblue\tred", "q 1\t42\tit is 43"],
)
def test_triples_accept_short_texts(line, tmp_path):
    (tmp_path / "triples.tsv").write_text(f"{line}\nwhat is that\tcovid19 it is\tred\n")
    assert len(read(tmp_path / "triples.tsv").take(2)) == 2


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
    one, other = read(plain), read(headed)
    assert other.take(2500) == one.take(2500)
    names = ", ".join(header.split("\t"))
    assert other.lines == [f"the columns of {headed} that are read: {names}"]
    assert one.lines == []


def test_triples_with_one_text_twice_are_left_out(tmp_path):
    lines = [
        "what is it\tit is blue\tIt  IS blue\u200b",
        "what is it\tit is blue\t\u2063",
        "what is it\tit is blue\tred",
    ]
    (tmp_path / "triples.tsv").write_text("\n".join(lines) + "\n")
    found = read(tmp_path / "triples.tsv", max_bad_rows=0)
    ((group, _),) = found.take(1)
    assert group.docs == ("it is blue", "red")
    assert found.lines[0].endswith(": 2; ignored")


def test_triples_have_a_limit_of_broken_lines(tmp_path):
    good, broken = "query {0}\tpositive {0}\tnegative {0}", "query {0}\ta\tb\tc"
    path = tmp_path / "triples.tsv"
    path.write_text("\n".join([good.format(0), *map(broken.format, range(250))]) + "\n")
    with refuses(PreflightError, "columns", 2) as error:
        read(path)
    assert "250 problems" in str(error.value)
    assert len(read(path, max_bad_rows=250).take(3)) == 3
    path.write_text(
        "\n".join([*map(good.format, range(1500)), *map(broken.format, range(50))]) + "\n"
    )
    with pytest.raises(PreflightError, match=r"50 .*18"):
        read(path, max_bad_rows=9)


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_triples_resume_at_any_position(name, tmp_path):
    found = read(write_triples(tmp_path / name, 2100))
    whole = found.take(4500)
    for at in (0, 997, 999, 1000, 1996, 2050, 2096, 2097, 3333):
        assert found.take(50, whole[at][1]) == whole[at + 1 : at + 51]


def test_triples_refuse_a_file_without_any(tmp_path):
    (tmp_path / "wrong.tsv").write_text("q1 Q0 d1 1 3.0 run\n" * 5)
    with pytest.raises(PreflightError) as error:
        read(tmp_path / "wrong.tsv")
    assert error.value.kind == "columns"
    (tmp_path / "same.tsv").write_text("what is\tit is\tIt is\n" * 5)
    with pytest.raises(PreflightError, match=r"same\.tsv .*: 5;"):
        read(tmp_path / "same.tsv")
    with refuses(PreflightError, "no-file"):
        read(tmp_path / "missing.tsv")


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["q1\tdoc12\tdoc7", "q2\tWEB-2\tWEB-11"], None),
        (["qid\tneg_id\tpos_id", "q1\tdoc7\tdoc12", "q2\tWEB-11\tWEB-2"], None),
        (["qid\tpid\tgrade", "q1\tdoc12\t2", "q2\tWEB-2\t0"], "column-missing"),
        (["q1\tdoc12\t2", "q2\tWEB-2\t0"], "labels"),
        ([f"{n}\t{n}\t{n % 3}" for n in range(9)], "labels"),
        ([f"{n}\t{n}\t{(n + 1) % 9}" for n in range(9)], None),
    ],
)
def test_header_and_grades_of_ids_are_known(lines, kind, tmp_path):
    (tmp_path / "ids.tsv").write_text("\n".join(lines) + "\n")

    def rows() -> list[tuple[object, ...]]:
        file = open_triples(InputFile(str(tmp_path / "ids.tsv")), ID_TRIPLES)
        return [tuple(row.values()) for table in blocks_of(file) for row in table.to_pylist()]

    if kind is None:
        found = rows()
        assert len(found) == len(lines) - lines[0].startswith("qid")
        assert "doc7" not in {row[1] for row in found}
        return
    with pytest.raises(PreflightError) as error:
        rows()
    assert error.value.kind == kind

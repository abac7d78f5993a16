import gzip
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from beamrank.errors import PreflightError
from models.tokenizers.bert import load_bert
from models.training.config import DataConfig
from models.training.data.groups import Group, GroupSource
from models.training.data.texts import TextWriter
from models.training.data.triples import BLOCK, has_header, is_header, store_triples
from tests.support.training import save_tokenizer


class RecordedTexts(TextWriter):
    """Keeps the texts that it writes."""

    def __init__(self, folder: Path) -> None:
        save_tokenizer(folder)
        super().__init__(folder, load_bert(str(folder)), 32)
        self.texts: list[str] = []

    def add(self, texts: Sequence[str]) -> None:
        super().add(texts)
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
        f"lines of {tmp_path / name} that are no triple, have an empty text or one text twice: "
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
        (_LABELLED, r"column 3 holds labels, scores or ids \(0, 1\) in the first 3 lines"),
        (["query\tpassage\tlabel", *_LABELLED], r"column 3 holds labels, scores or ids \(0, 1\)"),
        (moved("201"), r"column 1 holds labels"),
        (moved("021"), r"column 2 holds labels"),
        (
            [line.replace("\t0", "\t0.25") for line in _LABELLED],
            r"column 3 holds labels, scores or ids \(0\.25, 1\)",
        ),
        (
            ["1000\tD500\tD600", "1001\tD501\tD601"],
            "column 1 and 2 and 3 holds .*D600, D601.* data.corpus",
        ),
        (["apple\tbanana\tcherry", "apple\tcherry\tdate"], "column 1 and 2 and 3 holds"),
        (["what is it\tD500\tD600", "what is that\tD501\tD601"], "column 2 and 3 holds"),
        (["q1\tit is blue\tit is red", "q2\tit is red\tit is gold"], "column 1 holds"),
    ],
)
def test_triples_refuse_other_columns(lines, message, tmp_path):
    (tmp_path / "other.tsv").write_text("\n".join(lines) + "\n")
    with pytest.raises(PreflightError, match=message):
        read(tmp_path / "other.tsv")


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
        read(tmp_path / "triples.tsv")


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
    assert other.lines == [f"the first line of {headed} is a header, and is left out"]
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
    with pytest.raises(
        PreflightError,
        match=r"250 of 251 lines are not query.* is line 2: it has 4 columns with a text",
    ):
        read(path)
    assert len(read(path, max_bad_rows=250).take(3)) == 3
    path.write_text(
        "\n".join([*map(good.format, range(1500)), *map(broken.format, range(50))]) + "\n"
    )
    with pytest.raises(PreflightError, match=r"50 of 550 lines are not query"):
        read(path, max_bad_rows=9)


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_triples_resume_at_any_position(name, tmp_path):
    found = read(write_triples(tmp_path / name, 2100))
    whole = found.take(4500)
    for at in (0, 997, 999, 1000, 1996, 2050, 2096, 2097, 3333):
        assert found.take(50, whole[at][1]) == whole[at + 1 : at + 51]


def test_triples_refuse_a_file_without_any(tmp_path):
    (tmp_path / "wrong.tsv").write_text("q1 Q0 d1 1 3.0 run\n" * 5)
    with pytest.raises(PreflightError, match="none of its 5 lines is query<TAB>relevant"):
        read(tmp_path / "wrong.tsv")
    with pytest.raises(PreflightError, match=r"missing\.tsv does not exist"):
        read(tmp_path / "missing.tsv")


def test_long_name_of_a_column_is_told_at_once():
    assert not is_header(["docid " * 40 + "!"])
    assert is_header(["docid " * 40])


def test_ids_that_look_like_names_are_no_header(tmp_path):
    path = tmp_path / "ids.tsv"
    path.write_text("q1\tdoc12\tdoc7\nq2\tWEB-2\tWEB-11\n")
    assert not has_header(str(path), ids=True)
    path.write_text("qid\tpos_id\tneg_id\nq2\tWEB-2\tWEB-11\n")
    assert has_header(str(path), ids=True)

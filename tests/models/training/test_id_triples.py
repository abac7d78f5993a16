"""Triples of ids: the same batches and the same training as from the same triples of texts."""

import functools
import gzip
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamrank.errors import PreflightError
from models.training.config import Kind
from models.training.data.groups import Group
from models.training.session import Session
from tests.support.training import COLOURS, THINGS, make_session, save_start, write_train_config

# More than two blocks.
_TRIPLES = 2300
_DOCS = [" ".join(COLOURS[(n + step) % 10] for step in range(n // 10 + 1)) for n in range(40)]
# Copies of two docs, one with spaces around, and a doc without text.
_CORPUS = [*_DOCS, _DOCS[3], f" {_DOCS[4]} ", ""]


def query_id(number: int) -> str:
    return f"topic-{number * 1001}"


def doc_id(number: int) -> str:
    return str(7**number)


@pytest.fixture
def config(tmp_path) -> Path:
    """A configuration over triples; `texts.tsv` and `ids.tsv` hold the same."""
    path = write_train_config(tmp_path, save_start(tmp_path / "start"))
    docs = [
        json.dumps({"id": doc_id(n), "contents": text}) + "\n"
        for n, text in enumerate([*_CORPUS, "unused"])
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(docs))
    (tmp_path / "topics.tsv").write_text(
        "".join(f"{query_id(n)}\twhat is {t}\n" for n, t in enumerate(THINGS))
    )
    draw = random.Random(5)
    triples = [(draw.randrange(10), *draw.sample(range(40), 2)) for _ in range(_TRIPLES)]
    # Passages with the same text, twice the same doc, and a passage without text.
    triples[7:7] = [(1, 3, 40), (2, 41, 4), (3, 5, 5), (4, 6, 42)]
    texts = [
        f"what is {THINGS[query]}\t{_CORPUS[one]}\t{_CORPUS[other]}"
        for query, one, other in triples
    ]
    ids = [f"{query_id(query)}\t{doc_id(one)}\t{doc_id(other)}" for query, one, other in triples]
    for name, lines in (("texts", texts), ("ids", ids)):
        lines[1500:1500] = ["two\tcolumns"]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.tsv.gz").write_bytes(
            gzip.compress((tmp_path / f"{name}.tsv").read_bytes())
        )
    return path


def session(
    config: Path, output: str, data: dict[str, Any], kind: Kind = "mono", *overrides: str
) -> Session:
    written = yaml.safe_load(config.read_text()) | {"data": data}
    config.write_text(yaml.safe_dump(written))
    # More steps than there are triples, so that all are read.
    return make_session(config, kind, ["optimizer.steps=2000", *overrides], config.parent / output)


def of_texts(name: str = "texts.tsv") -> dict[str, Any]:
    return {"triples": name}


def of_ids(name: str = "ids.tsv", **keys: object) -> dict[str, Any]:
    collection = {
        "corpus": {"path": "corpus.jsonl"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
    }
    return {"triples": name, **collection, **keys}


def token_ids(found: Session, groups: Iterator[Group[Any]]) -> list[tuple[tuple[int, ...], ...]]:
    """The token ids of the query and of the docs of each group."""

    @functools.cache
    def ids(text: Any) -> tuple[int, ...]:
        return tuple(found.data.tokens[[text]].to_pylist()[0])

    return [tuple(map(ids, (group.query, *group.docs))) for group in groups]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_triples_of_ids_have_the_order_and_tokens_of_texts(ending, config):
    text = session(config, "texts", of_texts(f"texts.tsv{ending}"))
    ids = session(config, "ids", of_ids(f"ids.tsv{ending}"))
    count = 2 * _TRIPLES + 50
    one, other = (list(islice(each.source.stream(0), count)) for each in (text, ids))
    wanted = token_ids(text, (group for group, _ in one))
    assert token_ids(ids, (group for group, _ in other)) == wanted
    assert len({group.docs for group, _ in other[:_TRIPLES]}) > 1000
    assert all(group.relevant == (True, False) for group, _ in other)
    for at in (0, 998, 999, 1000, 2299, 2300, 3400):
        resumed = (group for group, _ in islice(ids.source.stream(other[at][1]), 30))
        assert token_ids(ids, resumed) == wanted[at + 1 : at + 31]
    (line,), (same,) = text.data.lines, ids.data.lines
    assert line.endswith(": 5; ignored")
    assert same.endswith(": 5; ignored")


def test_ids_without_a_text_are_counted(config, tmp_path):
    with open(tmp_path / "ids.tsv", "a") as file:
        file.write(f"{query_id(1)}\t{doc_id(2)}\tnowhere\nunknown\t{doc_id(2)}\t{doc_id(3)}\n")
    found = session(config, "out", of_ids(max_bad_rows=2))
    (line, invalid) = found.data.lines
    place = (
        f"{tmp_path}/ids.tsv:{_TRIPLES + 6}: doc_id 'nowhere' is not in the corpus "
        f"{tmp_path}/corpus.jsonl"
    )
    assert line == f"triples that have an id without a text: 2; the first: {place}; ignored"
    assert invalid.endswith(": 5; ignored")
    with pytest.raises(PreflightError) as error:
        session(config, "other", of_ids(max_bad_rows=1))
    assert (
        f"2 triples have an id without a text, and data.max_bad_rows is 1; the first: {place}"
        in str(error.value)
    )
    assert not list(tmp_path.glob("other/training/data-*"))


def test_ids_of_another_collection_are_an_error(config, tmp_path):
    """A file of texts is one too: no query is a query_id."""
    (tmp_path / "words.tsv").write_text("sky\tblue\tred\n")
    with pytest.raises(PreflightError, match=r"words\.tsv:1: .*'sky'"):
        session(config, "out", of_ids("words.tsv"))
    with pytest.raises(PreflightError) as error:
        session(config, "out", of_ids("texts.tsv"))
    assert error.value.kind == "columns"
    (tmp_path / "corpus.jsonl").write_text('{"id": "other", "contents": "blue"}\n')
    with pytest.raises(PreflightError, match=r"ids\.tsv:1: .*'\d+'"):
        session(config, "out", of_ids())
    (tmp_path / "ids.tsv").write_text(f"{query_id(1)}\tone\ttwo\n")
    with pytest.raises(PreflightError, match="'one'"):
        session(config, "out", of_ids())
    (tmp_path / "ids.tsv").write_text("nothing\n")
    with pytest.raises(PreflightError) as error:
        session(config, "out", of_ids())
    assert error.value.kind == "columns"


def test_header_of_ids_is_left_out_and_labels_are_refused(config, tmp_path):
    whole = session(config, "whole", of_ids())
    content = (tmp_path / "ids.tsv").read_text()
    (tmp_path / "headed.tsv").write_text(f"query_id\tpos_id\tneg_id\n{content}")
    headed = session(config, "headed", of_ids("headed.tsv", max_bad_rows=1))
    one, other = (list(islice(each.source.stream(0), 1100)) for each in (whole, headed))
    assert [group for group, _ in other] == [group for group, _ in one]
    line = f"the columns of {tmp_path}/headed.tsv that are read: query_id, pos_id, neg_id"
    assert line in headed.lines()
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{query_id(n)}\t{doc_id(n)}\t{n % 2}\n" for n in range(10))
    )
    with pytest.raises(PreflightError, match=r"column 3 .*\(0, 1\)"):
        session(config, "pairs", of_ids("pairs.tsv"))


def test_copies_of_a_text_keep_their_own_tokens(config, tmp_path):
    """Two docs that differ in letter case are one text, and a cased tokenizer gives them other
    tokens.
    """
    docs = [("1", "blue is"), ("2", "what"), ("7", "BLUE  is\u200b"), ("9", "\u2063")]
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"id": i, "contents": t}) + "\n" for i, t in docs)
    )
    triples = [("1", "7"), ("7", "2"), ("9", "2"), ("1", "2")]
    (tmp_path / "ids.tsv").write_text(
        "".join(f"{query_id(1)}\t{one}\t{other}\n" for one, other in triples)
    )
    found = session(config, "out", of_ids())
    assert found.data.lines[-1].endswith(": 2; ignored")
    # Its normal form and its token ids.
    assert len(found.source.queries) == 2

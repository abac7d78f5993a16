import gzip
from itertools import islice
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from models.training.data.examples import Source
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

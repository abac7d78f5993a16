import gzip
from itertools import islice
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from models.training.config import DataConfig, SamplingConfig
from models.training.data.examples import Source
from models.training.data.mining import MinedSource, mine
from models.training.data.triples import TriplesSource
from tests.support.training import COLOURS, write_collection


def take(source: Source, count: int, position: dict[str, int] | None = None):
    return list(islice(source.stream(position or {}), count))


def check_resumes(source: Source, count: int) -> None:
    """The stream resumes at every position."""
    whole = take(source, count)
    for at in range(0, count, 7):
        group, position = whole[at]
        rest = take(source, count - at - 1, position)
        assert rest == whole[at + 1 :], f"after {group}"


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
    with pytest.raises(PreflightError, match="holds triples of ids, not of texts"):
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


def data_config(folder: Path, **keys: object) -> DataConfig:
    found = write_collection(folder)
    for name in ("qrels", "run"):
        found[name] = str(folder / found[name])
    for name in ("corpus", "topics"):
        found[name]["path"] = str(folder / found[name]["path"])
    return DataConfig.model_validate(found | keys)


def test_mining_draws_negatives_from_the_ranks_each_epoch(tmp_path):
    sampling = SamplingConfig(negatives=2, ranks=(1, 3))
    source = MinedSource(mine(data_config(tmp_path), sampling), sampling, seed=0)
    assert (source.docs_per_group, source.groups_per_epoch) == (3, 10)
    drawn: dict[str, set[str]] = {}
    for group, _ in take(source, 100):
        thing = int(COLOURS.index(group.docs[0]))
        allowed = {COLOURS[(thing + step) % 10] for step in (1, 2, 3)}
        assert group.relevant == (True, False, False)
        assert set(group.docs[1:]) < allowed
        drawn.setdefault(group.query, set()).update(group.docs[1:])
    assert all(len(negatives) == 3 for negatives in drawn.values())
    check_resumes(source, 40)


def test_natural_sampling_takes_each_candidate(tmp_path):
    sampling = SamplingConfig(mode="natural", ranks=(1, 4))
    source = MinedSource(mine(data_config(tmp_path), sampling), sampling, seed=0)
    groups = [group for group, _ in take(source, 40)]
    assert source.docs_per_group == 1
    assert sum(group.relevant == (True,) for group in groups) == 10
    assert len({(group.query, group.docs) for group in groups}) == 40


def test_triplets_give_each_positive_n_over_m_negatives(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq0 0 d1 1\n")
    sampling = SamplingConfig(mode="triplets")
    source = MinedSource(mine(data, sampling), sampling, seed=0)
    triplets = [group.docs for group, _ in take(source, source.groups_per_epoch or 0)]
    negatives = {positive: {n for p, n in triplets if p == positive} for positive in ("blue", "green")}
    assert {name: len(found) for name, found in negatives.items()} == {"blue": 2, "green": 2}
    assert not negatives["blue"] & negatives["green"]
    limited = SamplingConfig(mode="triplets", negatives=1)
    assert MinedSource(mine(data, limited), limited, 0).groups_per_epoch == 2


def test_mining_ignores_duplicates_of_positives(tmp_path):
    data = data_config(tmp_path)
    corpus = (tmp_path / "corpus.jsonl").read_text().replace('"green"', '"BLUE "').replace('"white"', '"red"')
    (tmp_path / "corpus.jsonl").write_text(corpus)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\n")
    mined = mine(data, SamplingConfig())
    assert [mined.texts[doc_id] for doc_id in mined.pools[0].negatives] == ["red", "black", "gold"]
    assert "negatives with the text of a positive, ignored: 1" in mined.lines
    assert "candidates with the text of another, ignored: 1" in mined.lines


def test_mining_names_unusable_topics(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "qrels.txt").write_text("q0 0 d0 1\nq1 0 d1 0\nq2 0 d2 1\n")
    rows = (tmp_path / "run.trec").read_text().splitlines()
    (tmp_path / "run.trec").write_text("\n".join(row for row in rows if not row.startswith("q2 ")) + "\n")
    lines = mine(data, SamplingConfig()).lines
    assert "topics without positives: 8 of 10 ('q1', 'q3', 'q4', ...); ignored" in lines
    assert "topics without candidates: 1 of 10 ('q2'); ignored" in lines
    strict = data.model_copy(update={"min_relevance": 2})
    with pytest.raises(PreflightError, match="the mined set is empty: topics without positives: 10 of 10"):
        MinedSource(mine(strict, SamplingConfig()), SamplingConfig(), 0)


def test_mining_refuses_a_run_of_relevant_docs_only(tmp_path):
    data = data_config(tmp_path)
    (tmp_path / "run.trec").write_text("".join(f"q{n} Q0 d{n} 1 1.0 run\n" for n in range(10)))
    with pytest.raises(PreflightError, match="the mined set is empty: topics without negatives: 10 of 10"):
        MinedSource(mine(data, SamplingConfig()), SamplingConfig(), 0)


def test_mining_refuses_missing_and_duplicate_docs(tmp_path):
    data = data_config(tmp_path)
    corpus = tmp_path / "corpus.jsonl"
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(PreflightError, match=r"1 of the 10 docs that run and qrels name .* 'd9'"):
        mine(data, SamplingConfig())
    corpus.write_text("\n".join([*lines, lines[2]]) + "\n")
    with pytest.raises(PreflightError, match=r"'d2' appears twice in the corpus: .* and "):
        mine(data, SamplingConfig())


def test_mining_adds_the_teachers_scores(tmp_path):
    data = data_config(tmp_path, teacher=str(tmp_path / "teacher.trec"))
    rows = (tmp_path / "teacher.trec").read_text().splitlines()
    (tmp_path / "teacher.trec").write_text("\n".join(row for row in rows if not row.startswith("q0 Q0 d1 ")) + "\n")
    mined = mine(data, SamplingConfig())
    assert "docs without a teacher's score, ignored: 1" in mined.lines
    source = MinedSource(mined, SamplingConfig(), 0)
    for group, _ in take(source, 10):
        negative = COLOURS.index(group.docs[1])
        assert group.teacher_scores == pytest.approx((4.0, 1 / negative if negative else 2.0))

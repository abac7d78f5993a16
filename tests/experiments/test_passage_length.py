"""The length study: its collection, its table, and a whole study of a model that takes no time."""

import json
from pathlib import Path

import pytest

from benchmarks.datasets.medquad import read_medquad
from experiments.passage_length import length_pictures, length_study, length_table
from experiments.passage_length.length_study import INPUTS, METHODS, Input, Row, Settings
from experiments.passage_length.study import main
from tests.support.training import (
    COLOURS,
    save_medquad_archive,
    save_medquad_collection,
    save_start,
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return save_medquad_archive(tmp_path)


def test_medquad_counts_duplicates_once(archive: Path):
    collection = read_medquad(archive)
    assert [doc.text for doc in collection.passages] == [f"the {colour}" for colour in COLOURS]
    assert len(collection.topics) == 11
    texts = {topic.text: tuple(collection.qrels[topic.query_id]) for topic in collection.topics}
    assert texts["what is sky"] == ("a00000", "a00006")
    assert texts["what is the milk"] == ("a00000",)
    assert set(collection.chosen(3)) < set(collection.chosen(5)) < set(collection.chosen(None))


def _row(method: str, tokens: int, fold: int, ranks: str, value: float) -> dict:
    measures = dict.fromkeys(length_study.MEASURES, value)
    bm25 = dict.fromkeys(length_study.MEASURES, 0.25)
    row = {
        "method": method,
        "tokens": tokens,
        "chunks": 1,
        "pooling": "attention",
        "fold": fold,
        "topics": len(ranks.split()),
        "steps": 3,
    }
    return {**row, "device": "cpu", "measures": measures, "ranks": ranks, "bm25": bm25}


def test_length_table_by_hand():
    settings = {
        "start": "bert",
        "questions": None,
        "k": 10,
        "negatives": 2,
        "steps": None,
        "learning_rate": 2e-5,
    }
    settings |= {"folds": 2, "dtype": "bfloat16", "truncation": "hf"}
    rows = [
        _row("BERTlets", 256, 0, "1 2 4 0", 0.4),
        _row("BERTlets", 256, 1, "1 1", 1.0),
        _row("BERTlets", 128, 0, "2 2 2 2", 0.5),
    ]
    page = length_table.render({"settings": settings, "rows": rows})
    assert page.count("| 256 |  | 0.600 |  |") == 3
    assert page.count("| 128 |  | 0.500 (1 of 2) |  |") == 3
    assert "| BM25 alone | 0.250 | 0.250 | 0.250 |" in page
    # .5 less the mean of 1, .5, .25 and 0; a paired t-test over four topics.
    assert "| 128 |  | +0.062 (p 0.79) |  |" in page
    assert (
        "All questions, start `bert`, three epochs, learning rate 2e-05, at most 2 triplets a "
        "positive, " in page
    )
    assert "dtype bfloat16 on cpu, truncation hf." in page


@pytest.mark.slow
def test_length_study_resumes(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    start = save_start(tmp_path / "start", max_position_embeddings=128)
    data = tmp_path / "work/questions-all-k3"
    save_medquad_collection(archive, data)
    output = tmp_path / "results/passage-length.json"
    arguments = [
        "--medquad",
        str(archive),
        "--start",
        start,
        "--k",
        "3",
        "--steps",
        "12",
        "--folds",
        "2",
    ]
    arguments += [
        "--dtype",
        "float32",
        "--work",
        str(tmp_path / "work"),
        "--output",
        str(output),
        "--only-folds",
        "1",
    ]
    main([*arguments, "--only", "BERTlets", "BERT[PW]", "--inputs", "64"])
    main([*arguments, "--only", "BERTlets", "--inputs", "64", "max 2*128"])
    assert capsys.readouterr().err.count("training ") == 3
    results = json.loads(output.read_text())
    assert [Row.of_result(row) for row in results["rows"]] == [
        Row("BERTlets", Input(64), 1),
        Row("BERT[PW]", Input(64), 1),
        Row("BERTlets", Input(128, 2, "max"), 1),
    ]
    assert results["settings"]["start"] == "start"
    for row in results["rows"]:
        values = [1 / int(rank) if rank != "0" else 0 for rank in row["ranks"].split()]
        assert len(values) == row["topics"] > 2
        assert row["measures"]["RR"] == pytest.approx(sum(values) / len(values), abs=1e-5)
        assert row["steps"] == 12
        # BM25 has no right passage, or has it after two wrong ones; then it is put at rank 3.
        assert 0.3 < row["bm25"]["RR"] <= 1
    assert sorted(path.name for path in output.parent.glob("*.svg")) == [
        "passage-length-lengths.svg",
        "passage-length-methods.svg",
    ]
    assert "(1 of 2)" in output.with_suffix(".md").read_text()
    assert not list(data.glob("*-fold1"))
    with pytest.raises(SystemExit, match="settings"):
        main([*arguments, "--seed", "1"])


@pytest.mark.parametrize(
    ("method", "objective", "labels"),
    [("BERT[PW]", "pointwise", 2), ("BERTlets", "bertlets", 1), ("BERT[CE]", "bert_ce", 1)],
)
def test_length_study_row_is_a_recipe_of_the_paper(
    tmp_path: Path, method: str, objective: str, labels: int
):
    settings = Settings("x/y", None, 10, 2, None, 1e-4, 5, 0, "float32")
    config = length_study.train_config(Row(method, Input(128, 3, "max"), 4), settings, tmp_path)
    assert config.chunks is not None
    assert (config.chunks.count, config.chunks.pooling, config.input.max_length) == (3, "max", 128)
    assert (config.optimizer.learning_rate, config.optimizer.epochs, config.labels) == (
        1e-4,
        3,
        labels,
    )
    assert config.folds is not None
    assert (config.folds.count, config.folds.held_out, config.objective) == (5, 4, {objective: 1.0})
    assert config.input.truncation == "hf"
    assert config.dev is not None
    assert config.dev.run.endswith("/with-relevant.trec")
    attention = length_study.train_config(Row(method, Input(128, 2), 0), settings, tmp_path)
    assert attention.chunks is not None
    assert attention.chunks.attention_size == 192
    assert (
        length_study.train_config(Row(method, Input(64), 0), settings, tmp_path).input.max_length
        == 64
    )


def test_length_study_has_120_rows_with_distinct_folders():
    rows = [Row(method, how, fold) for method in METHODS for how in INPUTS for fold in range(5)]
    assert len({row.folder for row in rows}) == len(rows) == 120
    assert [how.name for how in INPUTS] == [
        "64",
        "128",
        "256",
        "384",
        "2*128",
        "3*128",
        "max 2*128",
        "max 3*128",
    ]


@pytest.mark.slow
def test_length_pictures_show_what_was_measured(tmp_path: Path):
    rows = [_row(method, 64, 0, "1 2", 0.75) for method in METHODS] + [
        _row("BERTlets", 256, 0, "1 1", 1.0)
    ]
    for path in (tmp_path / "a.json", tmp_path / "b.json"):
        length_pictures.draw({"rows": rows}, path)
    for name in ("methods", "lengths"):
        content = (tmp_path / f"a-{name}.svg").read_bytes()
        assert content == (tmp_path / f"b-{name}.svg").read_bytes()
        assert b"<svg" in content
    length_pictures.draw({"rows": rows[1:]}, tmp_path / "c.json")
    assert (tmp_path / "c-methods.svg").read_bytes() != (tmp_path / "a-methods.svg").read_bytes()

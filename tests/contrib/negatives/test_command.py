"""`beamrank negatives`: the rows that it writes, folders that resume, and their readers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.data_collator import CrossEncoderDataCollator
from sentence_transformers.cross_encoder.losses import ListNetLoss, MarginMSELoss

from beamrank.commit.owner import launched
from beamrank.commit.plan import Plan
from beamrank.commit.shards import cut_shards
from beamrank.errors import PreflightError
from beamrank.formats.qrels import read_qrels
from contrib.negatives.table import TableFolder
from models.training.config import DataConfig
from tests.models.training.test_sources import read
from tests.support.checkpoints import save_tiny
from tests.support.processes import refused, succeed
from tests.support.refusals import refuses
from tests.support.scored_outputs import ScoredOutput

_ARGUMENTS = ["--num-negatives", "2", "--absolute-margin", "0.3", "--ids"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> ScoredOutput:
    found = ScoredOutput(tmp_path_factory.mktemp("made"), topics=40, depths=(20, 15, 4)).run()
    # Two docs with the same text, and one without.
    found.texts["d1"], found.texts["d2"] = f"  {found.texts['d0'].upper()}", " "
    found.write_corpus()
    return found


def _output(made: ScoredOutput) -> Path:
    return Path(made.plan.output)


def _wanted(made: ScoredOutput) -> set[tuple[str, str, str]]:
    """The triplets of `_ARGUMENTS`: a loop over the stored scores."""
    stored = (
        made.stored("mono")
        .to_pandas()
        .sort_values(["query_id", "score", "rank"], ascending=[True, False, True])
    )
    relevance, found = read_qrels(str(made.folder / "qrels.txt")).relevance, set()
    for query_id, docs in stored.groupby("query_id"):
        levels = relevance.get(query_id, {})
        scored = list(zip(docs["doc_id"], docs["score"], strict=True))
        positives = [
            (doc, score) for doc, score in scored if levels.get(doc, 0) > 0 and doc != "d2"
        ]
        known = {made.texts[doc].strip().lower() for doc, _ in positives} | {""}
        for positive, score in positives:
            seen, taken = set(known), 0
            for doc, other in scored:
                text = made.texts[doc].strip().lower()
                if (
                    levels.get(doc, 0) <= 0
                    and other + 0.3 <= score
                    and text not in seen
                    and taken < 2
                ):
                    found.add((query_id, positive, doc))
                    seen.add(text)
                    taken += 1
    return found


def test_triplets_are_those_of_the_stored_scores_with_texts_and_scores(made, tmp_path):
    path = tmp_path / "triplets.parquet"
    done = succeed("negatives", _output(made), *_ARGUMENTS, "--output", path)
    assert done.stdout == f"{path}\n"
    table, scores = pq.read_table(path), {}
    assert table.schema.names == ["anchor", "positive", "negative", "scores", "query_id", "doc_ids"]
    assert table.schema.metadata[b"beamrank.schema"] == b"negatives/1"
    for row in made.stored("mono").to_pylist():
        scores[row["query_id"], row["doc_id"]] = row["score"]
    rows = table.to_pylist()
    assert {(row["query_id"], *row["doc_ids"]) for row in rows} == _wanted(made)
    assert len(rows) == len(_wanted(made)) > 50
    for row in rows:
        assert row["anchor"] == f"text of {row['query_id']} "
        assert [row["positive"], row["negative"]] == [made.texts[doc] for doc in row["doc_ids"]]
        assert row["scores"] == [scores[row["query_id"], doc] for doc in row["doc_ids"]]
    judged = read_qrels(str(made.folder / "qrels.txt")).relevance
    positives = [
        (query_id, doc)
        for query_id in made.query_ids
        for doc, level in judged.get(query_id, {}).items()
        if level > 0
    ]
    missing = sum(pair not in scores for pair in positives)
    assert f"{len(positives):,} positives; mono did not score {missing:,}" in done.stderr
    assert "--absolute-margin" in done.stderr


def test_rows_are_the_same_for_any_shards(made, tmp_path):
    """The sampled rows, and of one file the bytes."""
    one = ScoredOutput(tmp_path / "one", topics=40, depths=(20, 15, 4))
    one.shards = cut_shards([topic for shard in made.shards for topic in shard.topics], 1)
    one.plan = Plan(
        "made",
        one.plan.output,
        one.shards,
        one.records,
        {**made.plan.config, "output": one.plan.output},
    )
    tables = [
        made.stored(name).sort_by([("query_id", "ascending")])
        for name in (each.name for each in made.records)
    ]
    one._tables = lambda query_ids: tables  # type: ignore[method-assign]
    one.run()
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for output, path in zip((made, one), paths, strict=True):
        succeed("negatives", _output(output), "--sampling-strategy", "random", "--output", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(pq.read_table(paths[0])) > 100
    succeed(
        "negatives", _output(made), "--sampling-strategy", "random", "--output", tmp_path / "parts"
    )
    parts = [pq.read_table(path) for path in sorted((tmp_path / "parts").glob("part-*"))]
    assert len(parts) == 3
    assert pa.concat_tables(parts).equals(pq.read_table(paths[0]))


def test_folder_resumes_and_is_made_again_for_other_options(made, tmp_path):
    folder = tmp_path / "parts"
    command = ["negatives", _output(made), "--output", folder]
    succeed(*command)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "_SUCCESS",
        "_negatives.json",
        *(f"part-{shard:05d}.parquet" for shard in range(3)),
    ]
    before = {name: (folder / name).read_bytes() for name in names}
    (folder / "part-00001.parquet").unlink()
    (folder / "part-00002.parquet").write_bytes(b"damaged")
    kept = (folder / "part-00000.parquet").stat().st_ino
    assert "1 part was there" in succeed(*command).stderr
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert (folder / "part-00000.parquet").stat().st_ino == kept
    succeed(*command, "--range-min", "1")
    assert (folder / "part-00002.parquet").read_bytes() != before["part-00002.parquet"]
    record = json.loads((folder / "_negatives.json").read_text())
    assert record["range_min"] == 1


def test_parts_of_other_rules_are_made_again(made, tmp_path):
    """As a release without digests in its parts, or another process, left them."""
    folders = [tmp_path / "parts", tmp_path / "other"]
    commands = [["negatives", _output(made), "--output", folder] for folder in folders]
    succeed(*commands[0])
    succeed(*commands[1], "--num-negatives", "1")
    before = {path.name: path.read_bytes() for path in folders[0].iterdir()}
    shutil.copy(folders[1] / "part-00000.parquet", folders[0])
    unmarked = pq.read_table(folders[0] / "part-00001.parquet")
    pq.write_table(unmarked.replace_schema_metadata({}), folders[0] / "part-00001.parquet")
    assert "1 part was there" in succeed(*commands[0]).stderr
    assert {path.name: path.read_bytes() for path in folders[0].iterdir()} == before


def test_folder_in_use_by_other_rules_is_refused(made, tmp_path):
    folder = tmp_path / "parts"
    command = ["negatives", _output(made), "--output", folder]
    succeed(*command)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with launched(str(folder), "0" * 12, "0" * 12):
        assert f"{folder} is in use" in refused(*command, "--num-negatives", "1", code=75)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    # The same rules make the same parts.
    (folder / "part-00000.parquet").unlink()
    rules = TableFolder(str(folder), "parquet", 3, json.loads(before["_negatives.json"]))
    with rules.opened() as missing:
        assert missing == [0]
        succeed(*command)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("record", ["{", "[]", '{"owner": 1}', "[" * 100_000, '{"rel": NaN}'])
def test_damaged_record_counts_as_other_rules(made, tmp_path, record):
    folder = tmp_path / "parts"
    command = ["negatives", _output(made), "--output", folder, "--max-score", "inf"]
    succeed(*command)
    (folder / "_negatives.json").write_text(record)
    (folder / "part-00000.parquet").write_bytes(b"")
    succeed(*command)
    assert pq.read_table(folder).num_rows
    assert "3 parts were there" in succeed(*command).stderr


def test_other_formats_have_all_negatives_of_a_positive_in_a_row(made, tmp_path):
    path = tmp_path / "found.parquet"
    command = [
        "negatives",
        _output(made),
        "--num-negatives",
        "4",
        "--absolute-margin",
        "0.5",
        "--output",
        path,
    ]
    succeed(*command, "--output-format", "n-tuple", "--no-output-scores")
    tuples = pq.read_table(path)
    assert tuples.schema.names == [
        "anchor",
        "positive",
        *(f"negative_{number}" for number in range(1, 5)),
    ]
    succeed(*command, "--output-format", "labeled-list", "--no-output-scores")
    lists = pq.read_table(path)
    assert lists.schema.names == ["anchor", "docs", "labels"]
    assert all(
        labels == [1, *[0] * (len(docs) - 1)]
        for _, docs, labels in zip(*lists.to_pydict().values(), strict=True)
    )
    full = lists.filter(pc.equal(pc.list_value_length(lists["docs"]), 5))
    assert 0 < len(full) < len(lists)
    assert [[query, *docs] for query, docs, _ in zip(*full.to_pydict().values(), strict=True)] == [
        list(row.values()) for row in tuples.to_pylist()
    ]


def test_stage_may_be_any_that_ranks(made, tmp_path):
    succeed(
        "negatives", _output(made), "--stage", "duo", "--ids", "--output", tmp_path / "duo.parquet"
    )
    compared = dict(
        zip(
            *(made.stored("duo")[name].to_pylist() for name in ("query_id", "doc_ids")), strict=True
        )
    )
    rows = pq.read_table(tmp_path / "duo.parquet").to_pylist()
    assert rows
    assert all({*row["doc_ids"]} <= {*compared[row["query_id"]]} for row in rows)


def test_sentence_transformers_reads_rows_and_scores(made, tmp_path):
    """Its collator and losses, whose values follow from the scores of the model."""
    model = CrossEncoder(
        save_tiny(tmp_path / "tiny", None, num_labels=1),
        device="cpu",
        activation_fn=torch.nn.Identity(),
    )
    collate = CrossEncoderDataCollator(preprocess_fn=model.preprocess)
    batches = {}
    for name in ("n-tuple", "labeled-list"):
        path = tmp_path / f"{name}.parquet"
        succeed("negatives", _output(made), "--output-format", name, "--output", path)
        rows = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
        batches[name] = collate([rows[number] for number in range(3)])
    labels, columns = batches["n-tuple"].pop("label"), list(batches["n-tuple"].values())
    logits = np.array(
        [model.predict(list(zip(columns[0], docs, strict=True))) for docs in columns[1:]]
    )
    teacher = torch.stack(list(labels)).numpy()
    wanted = ((logits[:1] - logits[1:]).T - (teacher[:, :1] - teacher[:, 1:])) ** 2
    model.eval()
    assert MarginMSELoss(model)(columns, labels).item() == pytest.approx(wanted.mean(), rel=1e-4)
    labels = batches["labeled-list"].pop("label")
    assert torch.isfinite(ListNetLoss(model)(list(batches["labeled-list"].values()), labels))


def test_training_reads_what_is_written(made, tmp_path):
    """Of n-tuples, a triple for each negative; of a folder all parts."""
    common: list[str | Path] = [
        "negatives",
        _output(made),
        "--num-negatives",
        "2",
        "--ids",
        "--output",
    ]
    succeed(*common, tmp_path / "one.parquet")
    succeed(*common, tmp_path / "parts")
    succeed(*common, tmp_path / "tuples.parquet", "--output-format", "n-tuple")
    wanted = {
        (row["anchor"].strip(), row["positive"].strip(), row["negative"].strip())
        for row in pq.read_table(tmp_path / "one.parquet").to_pylist()
    }
    for name in ("one.parquet", "parts", "tuples.parquet"):
        assert DataConfig(triples=str(tmp_path / name)).triples
        found = read(tmp_path / name)
        groups = found.take(found.source.groups_per_epoch or 0)
        assert {(group.query, *group.docs) for group, _ in groups} == wanted
        assert all(group.relevant == (True, False) for group, _ in groups)
    succeed(*common, tmp_path / "lists.parquet", "--output-format", "labeled-list")
    with refuses(PreflightError, "list-column"):
        read(tmp_path / "lists.parquet")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--output", "keep"], 3, "keep is a folder"),
        (["--output", "keep.parquet"], 2, "keep.parquet is a folder"),
        (
            ["--output", "x", "--stage", "unknown"],
            2,
            "--stage 'unknown'",
        ),
        (
            ["--output", "x", "--range-max", "2"],
            2,
            "--range-max 2 leave fewer than --num-negatives 3",
        ),
        (
            ["--output", "x", "--num-negatives", "30000000", "--output-format", "n-tuple"],
            2,
            "--num-negatives 30,000,000: ",
        ),
        (["--output", "x", "--num-negatives", "15"], 2, "at most 14"),
        (["--output", "x.parquet", "--absolute-margin", "99"], 3, "no positive has a negative"),
        (["--output", "x.parquet", "--rel", "9"], 3, "no positive has a negative"),
    ],
)
def test_negatives_refuse(made, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    for name in ("keep", "keep.parquet"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    assert message in refused("negatives", _output(made), *arguments, code=code)
    assert {path.name for path in tmp_path.iterdir()} <= {"keep", "keep.parquet", "x"}
    assert (tmp_path / "keep/mine.txt").read_text() == "mine"


def test_output_among_the_files_of_the_corpus_is_refused(tmp_path):
    found = ScoredOutput(tmp_path, corpus={"path": str(tmp_path), "format": "parquet"}).run()
    error = refused("negatives", found.plan.output, "--output", tmp_path / "x.parquet", code=2)
    assert "would be read as a file of the corpus" in error

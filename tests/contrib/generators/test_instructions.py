"""Instructions of models that read one: each topic's own, from a column of the topics, and that of
`beamrank score`.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit.shards import cut_shards
from beamrank.errors import BeamrankError, ConfigError
from beamrank.formats.columns import TopicColumns
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.records import Topic
from models.reranker import Reranker
from pipelines.commands.arguments import open_runs
from pipelines.launcher import Launcher
from tests.contrib.generators.cases import GENERATORS, save_generator
from tests.support.processes import refused, succeed
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection
from tests.support.tiers import slow_but

_INSTRUCTIONS = {"q1": "Find {passages} on bread", "q2": "Judge whether the dog is in France. " * 4}
_OPTIONS: Any = {"dtype": "float32", "device": "cpu", "kernel": "torch"}


def _collection(folder: Path, name: str = "Qwen3") -> SmallCollection:
    topics = {query_id: TOPICS[query_id] for query_id in _INSTRUCTIONS}
    given = {query_id: CANDIDATES[query_id] for query_id in topics}
    collection = SmallCollection(folder, topics=topics, shards=2).given_run(given)
    checkpoint = save_generator(folder / "mono", name)
    collection.keys["mono"] = {"checkpoint": checkpoint, "k": 4, "instruction": "{instruction}"}
    collection.keys["mono"] |= GENERATORS[name].options
    collection.keys["topics"] = {"path": "topics.jsonl", "format": "jsonl"}
    _write(collection, _INSTRUCTIONS)
    return collection


def _write(collection: SmallCollection, instructions: dict[str, str]) -> None:
    rows = [{"id": query_id, "text": text} for query_id, text in collection.topics.items()]
    given = (
        {"instruction": instructions[row["id"]]} if row["id"] in instructions else {}
        for row in rows
    )
    collection.write(
        "topics.jsonl", (json.dumps(row | each) for row, each in zip(rows, given, strict=True))
    )


@pytest.mark.parametrize("name", slow_but(1, ["Qwen3", "mxbai v2"]))
def test_run_scores_a_topic_with_its_own_instruction(name, tmp_path):
    collection = _collection(tmp_path, name)
    run = collection.run(launcher=Launcher)
    rows = run.rows("mono")
    for query_id, instruction in _INSTRUCTIONS.items():
        mine = [row for row in rows if row["query_id"] == query_id]
        reranker = Reranker(
            str(tmp_path / "mono"), instruction=instruction, **_OPTIONS, **GENERATORS[name].options
        )
        wanted = reranker.score([(TOPICS[query_id], DOCS[row["doc_id"]]) for row in mine])
        assert [row["score"] for row in mine] == wanted.tolist()
    manifest, runs = run.plan.seal("mono"), open_runs(run.plan.output)
    assert manifest is not None
    cut = sum(
        "mono" in (view.truncated or ())
        for query_id in _INSTRUCTIONS
        for view in runs.views(query_id, {})
    )
    assert cut == manifest.total("truncated_docs") > 0


def test_changed_instruction_repeats_its_shard_alone(tmp_path):
    collection = _collection(tmp_path)
    before = collection.run()
    _write(collection, _INSTRUCTIONS | {"q2": "Find cats"})
    after = collection.run()
    receipts = [run.plan.seal("mono").receipts for run in (before, after)]
    own = {shard.topics[0].query_id: shard.index for shard in after.plan.shards}
    assert receipts[0][own["q1"]] == receipts[1][own["q1"]]
    assert receipts[0][own["q2"]].part_sha256 != receipts[1][own["q2"]].part_sha256
    both, same = after.plan.topics.in_both(before.plan.topics)
    assert (len(both), len(same)) == (2, 1)
    # Where no stage reads it, the column is as if it were not there.
    plain = collection.plan("mono.instruction=null")
    topics = [Topic(*each) for each in collection.topics.items()]
    assert plain.plan.shards.digests == cut_shards(topics, 2).digests
    assert "instruction_tokens" not in dict(plain.plan.of_step("tokenize")[0].schema)


def test_column_of_instructions_can_have_another_name(tmp_path):
    path = tmp_path / "topics.tsv"
    path.write_text("qid\ttext\ttask\n2\tb\tfind b\n1\ta\tfind a\n")
    config = TopicsConfig(path=str(path), format="tsv", columns=TopicColumns(instruction="task"))
    assert list(
        zip(read_topics(config), read_topics(config, instructions=True).instructions, strict=True)
    ) == [
        (("2", "b"), "find b"),
        (("1", "a"), "find a"),
    ]
    assert read_topics(config).instructions == []


@pytest.mark.parametrize(
    ("instructions", "overrides", "message"),
    [
        ({"q1": "Find cats"}, [], r"(?s)topics\.jsonl.*instruction"),
        ({}, [], r"(?s)topics\.jsonl.*instruction"),
        (
            _INSTRUCTIONS | {"q2": "the dog " * 300},
            [],
            r"max_length \d+, max_query_length \d+ ",
        ),
        (
            _INSTRUCTIONS,
            ["mono.instruction=Find cats", "topics.columns.instruction=x"],
            "topics.columns.instruction",
        ),
        (_INSTRUCTIONS, ["mono.checkpoint=embedded:mono"], "'answers'"),
    ],
)
def test_instructions_that_cannot_be_read_are_refused(instructions, overrides, message, tmp_path):
    collection = _collection(tmp_path)
    _write(collection, instructions)
    with pytest.raises(BeamrankError, match=message) as raised:
        collection.plan(*overrides)
    assert raised.value.exit_code in (2, 3)


def test_score_has_one_instruction_for_all_pairs(tmp_path):
    folder, instruction = save_generator(tmp_path / "mono", "Qwen3"), "Find {passages} on bread"
    pairs = [("what is a dog?", "the dog"), ("France", "the capital of France")]
    queries, docs = zip(*pairs, strict=True)
    pq.write_table(
        pa.table({"id": [1, 2], "query": queries, "doc": docs}), tmp_path / "pairs.parquet"
    )
    score = [
        "score",
        tmp_path / "pairs.parquet",
        "--checkpoint",
        folder,
        "--output",
        tmp_path / "out",
    ]
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(GENERATORS["Qwen3"].options["prompt"]["text"])
    score += ["--set", f"prompt={prompt}", "--set", "answers=[yes, no]"]
    succeed(*score, "--dtype", "float32", "--instruction", instruction)
    found = pq.read_table(tmp_path / "out/runs/scores.parquet")["score"].to_pylist()
    options = _OPTIONS | {"prompt": prompt, "answers": ["yes", "no"]}
    assert found == Reranker(folder, instruction=instruction, **options).score(pairs).tolist()
    assert found != Reranker(folder, **options).score(pairs).tolist()
    assert "each topic" in refused(*score, "--instruction", "{instruction}", code=2)
    with pytest.raises(ConfigError, match="each topic"):
        Reranker(folder, instruction="{instruction}", **options)

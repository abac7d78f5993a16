"""The options `prompt` and `answers` in the section of a stage."""

import copy
import json
from typing import Any

import pytest

from beamrank.config.load import load_config, stored_config
from beamrank.errors import BeamrankError, PreflightError
from models.reranker import Reranker
from tests.contrib.generators.cases import GENERATORS, save_generator
from tests.support.small_collection import CANDIDATES, TOPICS, SmallCollection


def _collection(folder, **options: Any) -> SmallCollection:
    topics = {query_id: TOPICS[query_id] for query_id in ("q1", "q2")}
    given = {query_id: CANDIDATES[query_id] for query_id in topics}
    collection = SmallCollection(folder, topics=topics, shards=1).given_run(given)
    checkpoint = save_generator(folder / "mono", "monoT5")
    collection.keys["mono"] = {"checkpoint": checkpoint, "k": 4, **options}
    return collection


def test_plan_holds_the_prompt_of_a_file_beside_the_configuration(tmp_path):
    collection = _collection(tmp_path, prompt="monot5.txt", answers=["true", "false"])
    path = tmp_path / "monot5.txt"
    path.write_text("Query: {query} Document: {doc} Relevant:\n")
    run = collection.run()
    (record,) = run.plan.of_step("mono")
    assert record.settings["options"] == {
        "prompt": {"text": "Query: {{ query }} Document: {{ doc }} Relevant:\n"},
        "answers": ["true", "false"],
    }
    mono = stored_config(run.plan.config, "here").cascade[1].section
    assert mono.options["answers"] == ("true", "false")
    scores = [row["score"] for row in run.rows("mono")]
    path.write_text("Pergunta: {query} Documento: {doc} Relevante:\n")
    changed = collection.run()
    assert [row["score"] for row in changed.rows("mono")] != scores
    assert changed.plan.of_step("mono")[0].keys != record.keys


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "absent.txt"}, r"absent.txt"),
        ({"prompt": 3}, "prompt|options"),
        ({"answers": []}, "answers: "),
        ({"answers": ["yes", "no", "maybe"]}, "answers: "),
        ({"answer": ["yes"]}, "unknown key"),
        ({"options": {"answer": ["yes"]}}, r"'answer' .*answers, prefix, prompt"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message, tmp_path):
    collection = _collection(tmp_path, **options)
    with pytest.raises(BeamrankError, match=message) as raised:
        load_config(str(collection.path))
    assert raised.value.exit_code in (2, 3)


def test_answers_of_a_file_need_no_quotes(tmp_path):
    collection = _collection(tmp_path)
    text = collection.path.read_text()
    for answers in (("yes", "no"), ("true", "false")):
        given = text.replace("  k: 4", f"  k: 4\n  answers: [{', '.join(answers)}]")
        (tmp_path / "config.yaml").write_text(given)
        config = load_config(str(tmp_path / "config.yaml"))
        assert config.cascade[1].section.options == {"answers": answers}
        dumped = json.loads(json.dumps(config.model_dump(mode="json")))
        assert stored_config(dumped, "here").cascade == config.cascade


def test_model_without_the_option_refuses_it(tmp_path):
    options = GENERATORS["monoT5"].options
    with pytest.raises(PreflightError, match="'answers'"):
        Reranker("embedded:mono", **options)
    folder = save_generator(tmp_path, "monoT5")
    with pytest.raises(PreflightError, match="'truth'"):
        Reranker(folder, **{**options, "answers": ["truth", "false"]})


def test_copied_reranker_keeps_its_options(tmp_path):
    folder = save_generator(tmp_path, "monoT5")
    first = Reranker(folder, **GENERATORS["monoT5"].options)
    scores = copy.deepcopy(first).score([("a wok", "A pan.")])
    assert scores.tolist() == first.score([("a wok", "A pan.")]).tolist()

"""`beamrank card`: what a hub of data sets gets from a run."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import load_dataset
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt

from pipelines.runs.run_files import write_runs
from tests.support.processes import refused, succeed
from tests.support.scored_outputs import ScoredOutput
from tests.support.services.hub import served_hub


@pytest.fixture
def made(tmp_path) -> ScoredOutput:
    found = ScoredOutput(tmp_path / "made").run()
    write_runs(found.plan, found.runs().config)
    return found


def test_card_makes_an_output_a_data_set(made, tmp_path):
    output = Path(made.plan.output)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    done = succeed("card", output, "--licence", "cc-by-4.0", "--language", "en")
    assert done.stdout == f"{output}/README.md\n"
    assert {path: path.read_bytes() for path in before} == before
    card = DatasetCard.load(output / "README.md")
    assert (card.data.license, card.data.language, card.data.pretty_name) == (
        "cc-by-4.0",
        "en",
        "made",
    )
    assert str(tmp_path) not in card.content
    assert "| mono | embedded:mono | 8 | 30 |" in card.text
    for stage in ("retrieve", "mono", "duo"):
        rows = load_dataset(str(output), stage, split="train", cache_dir=str(tmp_path / "cache"))
        # As text, because a NaN differs from itself.
        assert str(rows.to_list()) == str(made.stored(stage).to_pylist())
    with served_hub() as hub:
        hub.upload("someone/rankings", output, tmp_path / "hub", "--repo-type", "dataset")
        files = {
            str(path.relative_to(output)): path.read_bytes()
            for path in output.rglob("*")
            if path.is_file()
        }
        assert hub.repositories["someone/rankings"] == files
        assert "/api/datasets/someone/rankings/commit/main" in hub.requests
    refused("card", output, code=3)


def test_card_names_the_parts_of_its_plan_among_others(made):
    mono = Path(made.plan.output) / "mono"
    (part, *_) = sorted(mono.glob("part-*"))
    (mono / "part-00000-0123456789ab.parquet").write_bytes(part.read_bytes())
    succeed("card", made.plan.output)
    configs = DatasetCard.load(Path(made.plan.output) / "README.md").data.configs
    files = {each["config_name"]: each["data_files"] for each in configs}
    assert files["retrieve"] == "retrieve/part-*.parquet"
    assert f"mono/{part.name}" in files["mono"]
    assert len(files["mono"]) == 3


def test_card_shows_a_mean_of_no_topic_as_undefined(made):
    measures = Path(made.plan.output) / "runs/measures.json"
    values = json.loads(measures.read_text())
    name = next(iter(values["mono"]))
    measures.write_text(json.dumps(values | {"mono": {name: float("nan")}}))
    succeed("card", made.plan.output)
    text = (Path(made.plan.output) / "README.md").read_text()
    assert re.search(r"^\| mono \| - \|", text, re.MULTILINE)


def test_card_of_damaged_measures_is_refused(made):
    (Path(made.plan.output) / "runs/measures.json").write_text("[" * 100_000)
    assert "runs/measures.json" in refused("card", made.plan.output, code=3)


def test_card_shows_a_run_tag_as_it_is(tmp_path):
    tag = "[x](https://a.b)<img/src=x>`*_#"
    made = ScoredOutput(tmp_path / "made")
    made.plan = replace(made.plan, run_tag=tag)
    made.run()
    succeed("card", made.plan.output)
    card = DatasetCard.load(Path(made.plan.output) / "README.md")
    assert card.data.pretty_name == tag
    shown = MarkdownIt().render(card.text.strip().splitlines()[0])
    assert html.unescape(shown) == f"<h1>{tag}</h1>\n"


def test_card_of_an_unfinished_run_is_refused(tmp_path):
    made = ScoredOutput(tmp_path).run(last_shards=1)
    assert "duo is not finished" in refused("card", made.plan.output, code=3)
    assert not (Path(made.plan.output) / "README.md").exists()

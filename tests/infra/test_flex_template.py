"""The flex template: its metadata is made from the configuration's model, and its program reads its
parameters.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import yaml
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    StandardOptions,
    WorkerOptions,
)

from beamrank.config.load import load_config
from infra.flex_template.generate import METADATA, metadata, render
from infra.flex_template.launch import command, parameters
from pipelines.runners.options import Runner, beam_options
from tests import ROOT

_VALUES: dict[str, Any] = {
    "corpus": {"path": "gs://b/corpus.tsv"},
    "topics": {"path": "gs://b/topics.tsv"},
    "index": {"path": "gs://b/index"},
    "bm25": {"k": 1000},
    "mono": {"checkpoint": "embedded:mono"},
    "duo": {"checkpoint": "embedded:duo"},
    "output": "gs://b/out",
}


def test_metadata_is_up_to_date():
    assert METADATA.read_text(encoding="utf-8") == render(), (
        "run: python -m infra.flex_template.generate"
    )


def test_metadata_is_a_message_of_googles_api():
    dataflow = pytest.importorskip(
        "google.cloud.dataflow_v1beta3",
        reason="apache-beam[gcp] is not installed: pip install '.[gcp]'",
    )
    message = dataflow.TemplateMetadata.from_json(METADATA.read_text(encoding="utf-8"))
    names = [parameter.name for parameter in message.parameters]
    assert len(names) == len(set(names)) == len(metadata()["parameters"])
    assert all(re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) for name in names)
    assert [each.name for each in message.parameters if not each.is_optional] == ["config", "stage"]
    for parameter in message.parameters:
        assert parameter.label
        assert parameter.help_text
        assert all(map(re.compile, parameter.regexes))


def test_parameters_hide_no_flag_of_beam():
    parser = argparse.ArgumentParser(add_help=False)
    for options in (GoogleCloudOptions, StandardOptions, WorkerOptions, DebugOptions):
        options._add_argparse_args(parser)
    flags = {
        name.removeprefix("--") for action in parser._actions for name in action.option_strings
    }
    names = {parameter["name"] for parameter in metadata()["parameters"]}
    assert len(names) > 30
    assert names & flags == set()


def _regexes():
    return {
        each["name"]: each["regexes"][0] for each in metadata()["parameters"] if "regexes" in each
    }


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("config", "gs://b/config.yaml", "config.yaml"),
        ("stage", "mono", "runs"),
        ("mono_k", "100", "many"),
        ("bm25_b", "0.4", "-"),
        ("topics_only_judged", "true", "yes"),
        ("duo_aggregation", "sym_sum", "median"),
        ("measures", "[RR@10, AP]", "RR@10"),
        ("run_tag", "a-run", "a run"),
    ],
)
def test_regex_of_a_parameter(name, good, bad):
    assert re.search(_regexes()[name], good)
    assert not re.search(_regexes()[name], bad)


def _parsed(tmp_path, *words):
    """The configuration that the program's arguments lead to."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(_VALUES))
    arguments = command([f"--config={path}", "--stage=mono", *words])
    overrides = [after for word, after in pairwise(arguments) if word == "--set"]
    return load_config(str(path), overrides)


def test_flex_template_accepts_every_default(tmp_path):
    expected = _parsed(tmp_path)
    for parameter in parameters():
        default = parameter.schema.get("default")
        if default in (None, "") or parameter.key.startswith(
            ("candidates.", "qrels.", "mono.combine.", "mono.segments.", "duo.seed")
        ):
            continue
        text = json.dumps(list(default)) if isinstance(default, tuple) else str(default)
        text = text.lower() if isinstance(default, bool) else text
        if parameter.name in _regexes():
            assert re.search(_regexes()[parameter.name], text), parameter.name
        if parameter.name != "duo_k":
            assert _parsed(tmp_path, f"--{parameter.name}={text}") == expected, parameter.name


def test_parameters_replace_keys(tmp_path):
    settings = _parsed(
        tmp_path, "--mono_k=100", "--run_tag=no", "--measures=[AP]", "--corpus_path=gs://b/0010"
    )
    assert (settings.cascade[1].section.k, settings.run_tag, settings.measures) == (
        100,
        "no",
        ("AP",),
    )
    assert settings.corpus.path == "gs://b/0010"


def test_program_passes_flags_of_the_launcher_on():
    launcher = [
        "--runner=DataflowRunner",
        "--project=some-project",
        "--region=europe-west4",
        "--job_name=beamrank-duo-20260101t000000",
        "--temp_location=gs://b/tmp",
        "--staging_location=gs://b/staging",
        "--template_location=gs://dataflow-staging/template_launches/1/job_object",
        "--labels={'goog-dataflow-provided-template-type': 'flex'}",
        "--max_num_workers=4",
        "--service_account_email=worker@some-project.iam.gserviceaccount.com",
    ]
    arguments = command(["--config=gs://b/config.yaml", "--stage=duo", *launcher])
    split = arguments.index("--")
    assert arguments[:split] == [
        "run",
        "gs://b/config.yaml",
        "--runner",
        "dataflow",
        "--stage",
        "duo",
        "--no-wait",
    ]
    assert arguments[split + 1 :] == launcher[1:]
    beam_options(Runner.DATAFLOW, arguments[split + 1 :])


def test_program_is_a_script(tmp_path):
    script = ROOT / "infra/flex_template/launch.py"
    arguments = [f"--config={tmp_path / 'none.yaml'}", "--stage=mono", "--project=some-project"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "cannot read the configuration" in done.stderr

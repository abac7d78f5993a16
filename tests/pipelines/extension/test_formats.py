"""Formats and an aggregation of an installed package that is not beamrank, in this file, used in
whole runs.
"""

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

import beamrank
from beamrank.commit.check import Verification
from beamrank.config.load import load_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats import corpora, qrels, run_writer, topics
from beamrank.formats.decode.base import (
    Bad,
    RecordsDecoder,
    numbered_lines,
    parsed,
)
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints
from beamrank.ranking.aggregation import METHODS
from beamrank.storage.streams import open_stream
from infra.flex_template.launch import parameters
from models.stages.core import open_stages
from pipelines.runs.verify_runs import verify_runs
from tests.support.plugins import EXAMPLE, install
from tests.support.processes import beamrank_here
from tests.support.runs import read_trec, run_bytes, run_here
from tests.support.small_collection import small_cascade


def _is_colon(beginning: Beginning) -> bool:
    return b": " in beginning.line


def _colons(file: InputFile, _hints: Hints) -> RecordsDecoder:
    def records(bad: Bad) -> Iterator[tuple[int, Sequence[str]]]:
        return parsed(numbered_lines(file.source), lambda line: line.split(": ", 1), bad)

    return RecordsDecoder(("query_id", "text"), records)


def _is_equation(beginning: Beginning) -> bool:
    return b" = " in beginning.line


def _judgments(file: InputFile, _hints: Hints) -> RecordsDecoder:
    def records(bad: Bad) -> Iterator[tuple[int, list[str]]]:
        with open_stream(file.url) as lines:
            for number, line in enumerate(lines, 1):
                yield number, re.split(": | = ", line.decode().strip())

    return RecordsDecoder(("query_id", "doc_id", "relevance"), records)


COLON = Format(Look("lines with a colon", _is_colon), _colons)
TOY_QRELS = Format(Look("judgments with an equals sign", _is_equation), _judgments)
TOY_RUN = run_writer.RunFormat("TOY", ("doc_id", "query_id", "rank", "score"), " ", "toy.run")


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    install(
        site,
        monkeypatch,
        corpora.FORMATS,
        blocks="beamrank_overlap.corpus:BLOCKS",
        broken="absent:BLOCKS",
    )
    install(site, monkeypatch, topics.FORMATS, colon=f"{__name__}:COLON")
    install(site, monkeypatch, qrels.FORMATS, toy=f"{__name__}:TOY_QRELS")
    install(site, monkeypatch, run_writer.FORMATS, toy=f"{__name__}:TOY_RUN")


def _in_toy_formats(path: Path) -> Path:
    """Writes a collection again, in the formats of this file."""
    folder = path.parent
    docs = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    blocks = "".join(f"={doc['id']}\n{doc['contents']}\n" for doc in docs)
    (folder / "corpus.blocks").write_text(f"{blocks}=no text")
    (folder / "topics.txt").write_text((folder / "topics.tsv").read_text().replace("\t", ": "))
    given = [line.split() for line in (folder / "given.trec").read_text().splitlines()]
    (folder / "given.txt").write_text(
        "".join(f"{row[2]} {row[0]} {row[3]} {row[4]}\n" for row in given)
    )
    judged = [line.split() for line in (folder / "qrels.txt").read_text().splitlines()]
    rows = "".join(f"{query_id}: {doc_id} = {level}\n" for query_id, _, doc_id, level in judged)
    (folder / "qrels.toy").write_text(rows)
    values = yaml.safe_load(path.read_text())
    values |= {
        "corpus": {"path": "corpus.blocks", "format": "blocks"},
        "qrels": "qrels.toy",
        "output": "toy",
    }
    values |= {"topics": {"path": "topics.txt", "format": "colon"}, "run_formats": ["trec", "toy"]}
    values["candidates"]["run"] = "given.txt"
    toy = folder / "toy.yaml"
    toy.write_text(yaml.safe_dump(values))
    return toy


def test_registered_formats_equal_built_in_ones(tmp_path: Path, registered: None) -> None:
    config = small_cascade(tmp_path).path
    expected, found = (
        Path(run_here(each).plan.output) for each in (config, _in_toy_formats(config))
    )
    assert run_bytes(found) == run_bytes(expected)
    for path in (expected / "runs").glob("*.trec"):
        toy = found / f"runs/{path.stem}.toy.run"
        assert beamrank.read_run(toy) == beamrank.read_run(path)
    measures = [each / "runs/measures.json" for each in (found, expected)]
    assert measures[0].read_bytes() == measures[1].read_bytes()
    place = f"{tmp_path}/corpus.blocks at block 31: the row has no text"
    assert any(place in receipt.read_text() for receipt in (tmp_path / "toy").rglob("*.json"))


def test_names_of_registered_formats_are_accepted_and_listed(
    tmp_path: Path, registered: None
) -> None:
    config = str(_in_toy_formats(small_cascade(tmp_path).path))
    for key, last in (
        ("corpus.format", "blocks"),
        ("topics.format", "colon"),
        ("run_formats", "toy"),
    ):
        with pytest.raises(ConfigError, match=rf"{key}.*'x' .*: \w.*, {last}(, |\n|$)"):
            load_config(config, [f"{key}={'[x]' if key == 'run_formats' else 'x'}"])
    config_of_auto = load_config(config, ["corpus.format=auto", "topics.format=auto"])
    assert (
        corpora.resolved(config_of_auto.corpus).format,
        topics.resolved(config_of_auto.topics).format,
    ) == (
        "blocks",
        "colon",
    )
    assert (
        next(each for each in parameters() if each.key == "corpus.format")
        .schema["enum"]
        .count("blocks")
        == 1
    )
    (tmp_path / "corpus.blocks").write_text('{"id": "1", "contents": "x"}\n')
    (tmp_path / "two.txt").write_text("two columns\n")
    with pytest.raises(PreflightError, match=r"JSONL: .*`corpus.format"):
        corpora.list_units(load_config(config).corpus)
    with pytest.raises(PreflightError, match=r"'broken' .*outside"):
        load_config(config, ["corpus.format=broken"])
    with pytest.raises(
        PreflightError,
        match=r"3 columns \(query_id doc_id rank\); 4 columns \(doc_id query_id rank score\)",
    ):
        beamrank.read_run(tmp_path / "two.txt")


def test_unregistered_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'blocks' .*auto, beir, csv, "):
        load_config(str(small_cascade(tmp_path).path), ["corpus.format=blocks"])


@pytest.mark.slow
def test_worker_reads_a_format_of_the_launcher(tmp_path, registered):
    (tmp_path / "c.blocks").write_text("=d1\nsome text\n=d2\nmore\n")
    (unit,) = corpora.list_units(corpora.CorpusConfig(path=str(tmp_path), format="blocks"))
    (tmp_path / "unit.pickle").write_bytes(pickle.dumps(unit))
    program = (
        "import pickle, sys; from beamrank.formats.corpora import FORMATS, read_unit; "
        "unit = pickle.load(open(sys.argv[1], 'rb')); print('blocks' in FORMATS, [b.texts for b "
        "in read_unit(unit)])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "unit.pickle")]
    environ = os.environ | {"PYTHONPATH": str(EXAMPLE)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "False [['some text', 'more']]\n"


def median(z):
    return np.nanmedian(z, axis=1)


def test_registered_aggregation_ranks_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "median", median)
    collection = small_cascade(tmp_path)
    collection.keys["duo"]["aggregation"] = "median"
    cascade = collection.run()
    runs = tmp_path / "out/runs"
    ranked = read_trec(runs / "duo-median.trec")
    manifest = cascade.plan.seal("duo")
    assert manifest is not None
    for receipt in manifest.receipts:
        for row in cascade.plan.folder("duo").read_part(receipt).to_pylist():
            count = len(row["doc_ids"])
            scores = np.nanmedian(
                np.array(row["scores"], dtype=np.float64).reshape(count, count), axis=1
            )
            best_first = [row["doc_ids"][place] for place in np.argsort(-scores, kind="stable")]
            assert ranked[row["query_id"]][:count] == best_first
    found = Verification()
    verify_runs(cascade.plan, open_stages(cascade.plan.stages), cascade.config, found)
    assert found.findings == []
    whole = (runs / "duo-median.trec").read_bytes()
    assert (
        beamrank_here("aggregate", tmp_path / "out", "--aggregation", "median,sum").returncode == 0
    )
    assert (runs / "duo-median.trec").read_bytes() == whole
    assert (runs / "duo-sum.trec").exists()

"""`beamrank convert`: what it prints, and its exit codes."""

import shutil

import pytest
from typer.testing import CliRunner

from beamrank.errors import ConfigError, PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.checkpoints.files import checkpoint_digest
from pipelines.cli import app
from tests.support.models.tensorflow1 import copy_checkpoint, copy_pretrained


def test_convert_prints_the_folder_and_its_digest(tmp_path):
    copy_checkpoint(tmp_path / "original")
    vocabulary = (tmp_path / "original" / "vocab.txt").rename(tmp_path / "words.txt")
    output = tmp_path / "duo"
    arguments = ["convert", "duo", f"{tmp_path}/original", "--vocab", str(vocabulary), "--output", str(output)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{output}\t{resolve_checkpoint(str(output), 'duo').digest}\n"
    assert "124 variables" in done.stderr
    command = f"    beamrank convert duo {tmp_path}/original --vocab {vocabulary} --output {output}\n"
    assert command in (output / "README.md").read_text()
    again = CliRunner().invoke(app, arguments)
    assert again.stdout == ""
    assert isinstance(again.exception, PreflightError)
    assert "is not an empty folder" in str(again.exception)


def test_convert_refuses_other_models(tmp_path):
    done = CliRunner().invoke(app, ["convert", "trio", str(tmp_path), "--output", str(tmp_path / "trio")])
    assert done.exit_code == 2
    assert "'trio'" in done.stderr


def test_convert_msmarco_prints_the_files(tmp_path):
    lines = [f"{query}\t{doc}\ta longer query of words\tpassage {doc}\n" for doc in range(5) for query in range(2)]
    (tmp_path / "top1000.eval.tsv").write_text("".join([*lines, "broken\n"]))
    output = tmp_path / "out"
    arguments = ["convert", "msmarco", str(tmp_path / "top1000.eval.tsv"), "--output", str(output), "--processes", "1"]
    done = CliRunner().invoke(app, [*arguments, "--docs", "7"])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{output}/dataset_eval.tf\n{output}/query_doc_ids_eval.txt\n"
    assert "14 examples" in done.stderr
    assert "rows that could not be used: 1 (first: " in done.stderr
    assert (output / "query_doc_ids_eval.txt").read_text().count("\t00000000\n") == 4
    again = CliRunner().invoke(app, arguments)
    assert "is not an empty folder" in str(again.exception)
    shorter = ["convert", "msmarco", str(output / "dataset_eval.tf"), "--output", str(tmp_path / "shorter")]
    done = CliRunner().invoke(app, [*shorter, "--max-length", "128"])
    assert isinstance(done.exception, ConfigError)
    assert "--max-length: examples are converted as they are" in str(done.exception)


def test_convert_msmarco_names_a_missing_source(tmp_path):
    done = CliRunner().invoke(app, ["convert", "msmarco", str(tmp_path / "no.tsv"), "--output", str(tmp_path / "out")])
    assert isinstance(done.exception, PreflightError)
    assert "no.tsv does not exist" in str(done.exception)


def test_convert_bert_reads_an_archive(tmp_path):
    copy_pretrained(tmp_path / "original")
    archive = shutil.make_archive(str(tmp_path / "uncased"), "zip", tmp_path, "original")
    output = tmp_path / "bert"
    arguments = ["convert", "bert", archive, "--output", str(output), "--drop-next-sentence"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{output}\t{checkpoint_digest(str(output))}\n"
    assert "without cls/seq_relationship/output_bias" in done.stderr
    assert (
        f"    beamrank convert bert {archive} --output {output} --drop-next-sentence\n"
        in (output / "README.md").read_text()
    )


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_convert_reads_an_archive_of_a_ranker(kind, tmp_path):
    copy_checkpoint(tmp_path / "original")
    archive = shutil.make_archive(str(tmp_path / "ranker"), "gztar", tmp_path, "original")
    done = CliRunner().invoke(app, ["convert", kind, archive, "--output", str(tmp_path / kind)])
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(app, ["convert", kind, str(tmp_path / "original"), "--output", str(tmp_path / "again")])
    assert again.stdout.split("\t")[1] == done.stdout.split("\t")[1]

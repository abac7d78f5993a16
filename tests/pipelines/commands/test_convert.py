"""`beamrank convert`: what it prints, and its exit codes."""

from typer.testing import CliRunner

from beamrank.errors import PreflightError
from models.checkpoints.check import resolve_checkpoint
from pipelines.cli import app
from tests.support.models.tensorflow1 import copy_checkpoint


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


def test_convert_msmarco_names_a_missing_source(tmp_path):
    done = CliRunner().invoke(app, ["convert", "msmarco", str(tmp_path / "no.tsv"), "--output", str(tmp_path / "out")])
    assert isinstance(done.exception, PreflightError)
    assert "no.tsv does not exist" in str(done.exception)

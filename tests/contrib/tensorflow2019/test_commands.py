"""`beamrank convert`: what it prints, and its exit codes."""

import shutil

import pytest

from models.checkpoints.checkpoint import resolve_checkpoint
from models.checkpoints.files import digest_files, digest_of
from tests.support.models.tensorflow1 import copy_checkpoint, copy_pretrained
from tests.support.processes import refused, succeed


def test_convert_prints_the_folder_and_its_digest(tmp_path):
    copy_checkpoint(tmp_path / "original")
    vocabulary = (tmp_path / "original" / "vocab.txt").rename(tmp_path / "words.txt")
    output = tmp_path / "duo"
    arguments = [
        "convert",
        "duo",
        f"{tmp_path}/original",
        "--vocab",
        str(vocabulary),
        "--output",
        str(output),
    ]
    done = succeed(*arguments)
    assert done.stdout == f"{output}\t{resolve_checkpoint(str(output), 'duo').digest}\n"
    assert "124 variables" in done.stderr
    command = (
        f"    beamrank convert duo {tmp_path}/original --vocab {vocabulary} --output {output}\n"
    )
    assert command in (output / "README.md").read_text()
    assert "not an empty folder" in refused(*arguments, code=3)


def test_convert_refuses_other_models(tmp_path):
    assert "'trio'" in refused("convert", "trio", tmp_path, "--output", tmp_path / "trio", code=2)


def test_convert_msmarco_prints_the_files(tmp_path):
    lines = [
        f"{query}\t{doc}\ta longer query of words\tpassage {doc}\n"
        for doc in range(5)
        for query in range(2)
    ]
    (tmp_path / "top1000.eval.tsv").write_text("".join([*lines, "broken\n"]))
    output = tmp_path / "out"
    arguments = [
        "convert",
        "msmarco",
        str(tmp_path / "top1000.eval.tsv"),
        "--output",
        str(output),
        "--processes",
        "1",
    ]
    done = succeed(*arguments, "--docs", "7")
    assert done.stdout == f"{output}/dataset_eval.tf\n{output}/query_doc_ids_eval.txt\n"
    assert "14 examples" in done.stderr
    assert ": 1 (first: " in done.stderr
    assert (output / "query_doc_ids_eval.txt").read_text().count("\t00000000\n") == 4
    assert "not an empty folder" in refused(*arguments, code=3)
    shorter = (
        "convert",
        "msmarco",
        output / "dataset_eval.tf",
        "--output",
        tmp_path / "shorter",
        "--max-length",
        "128",
    )
    assert "--max-length: " in refused(*shorter, code=2)


def test_convert_msmarco_names_a_missing_source(tmp_path):
    arguments = ("convert", "msmarco", tmp_path / "no.tsv", "--output", tmp_path / "out")
    assert "no.tsv" in refused(*arguments, code=3)


def test_convert_bert_reads_an_archive(tmp_path):
    copy_pretrained(tmp_path / "original")
    archive = shutil.make_archive(str(tmp_path / "uncased"), "zip", tmp_path, "original")
    output = tmp_path / "bert"
    arguments = ["convert", "bert", archive, "--output", str(output), "--drop-next-sentence"]
    done = succeed(*arguments)
    assert done.stdout == f"{output}\t{digest_of(digest_files(str(output)), str(output))}\n"
    assert "without cls/seq_relationship/output_bias" in done.stderr
    assert (
        f"    beamrank convert bert {archive} --output {output} --drop-next-sentence\n"
        in (output / "README.md").read_text()
    )


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_convert_reads_an_archive_of_a_ranker(kind, tmp_path):
    copy_checkpoint(tmp_path / "original")
    archive = shutil.make_archive(str(tmp_path / "ranker"), "gztar", tmp_path, "original")
    done = succeed("convert", kind, archive, "--output", tmp_path / kind)
    again = succeed("convert", kind, tmp_path / "original", "--output", tmp_path / "again")
    assert again.stdout.split("\t")[1] == done.stdout.split("\t")[1]

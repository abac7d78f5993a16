"""Tar archives of one file, as MS MARCO is released: every input is read as that file; other archives are errors."""

import io
import tarfile
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.topics import read_candidates
from beamrank.storage.streams import compression, open_stream, without_compression
from models.training.data.triples import TriplesSource
from tests.beamrank.storage.test_compressed_inputs import IDS, INPUTS, each_input
from tests.support.corpora import COMPRESSORS
from tests.support.processes import beamrank_here

ENDINGS = {".tar": lambda content: content, ".TAR.GZ": COMPRESSORS[".gz"], ".TBZ2": COMPRESSORS[".bz2"]} | {
    ending: compress
    for name, compress in COMPRESSORS.items()
    for ending in (f".tar{name}", f".t{name.removeprefix('.')}")
}
ROWS = "".join(f"q\td{number}\tthe query of all rows\tthe passage {number}\n" for number in range(50))


def tar_of(files: Mapping[str, bytes], links: tuple[str, ...] = ()) -> bytes:
    """An archive as macOS makes it, with a folder and `._` files; `links` are added at its end."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        folder = tarfile.TarInfo("./folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            for each, data in ((f"./folder/._{name}", b"of macOS"), (f"./folder/{name}", content)):
                member = tarfile.TarInfo(each)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        for name in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member)
    return target.getvalue()


def _write(folder: Path, files: Mapping[str, bytes], name: str = "input.tar.gz", links: tuple[str, ...] = ()) -> str:
    content = tar_of(files, links)
    (folder / name).write_bytes(COMPRESSORS[".gz"](content) if name.endswith("gz") else content)
    return str(folder / name)


def _read(url: str) -> bytes:
    with open_stream(url) as file:
        return file.read()


@each_input
@pytest.mark.parametrize("ending", ENDINGS)
def test_tar_of_one_file_is_read_as_the_file(tmp_path, kind, ending):
    content = "".join(INPUTS[kind][0].format(each) for each in IDS).encode()
    (tmp_path / f"input{ending}").write_bytes(ENDINGS[ending](tar_of({"input.txt": content})))
    assert compression(f"input{ending}") == "tar"
    assert without_compression(f"docs.jsonl{ending}") == "docs.jsonl"
    assert INPUTS[kind][1](str(tmp_path / f"input{ending}")) == IDS


def test_top1000_in_a_tar_is_corpus_and_candidates(tmp_path):
    url = _write(tmp_path, {"top1000.dev": ROWS.encode() + b"broken\n"}, "top1000.dev.tar.gz")
    (unit,) = list_units(CorpusConfig(path=url), unit_bytes=100)
    (batch,) = read_unit(unit)
    assert (batch.doc_ids[-1], batch.texts[-1], batch.query_ids[-1]) == ("d49", "the passage 49", "q")
    assert [row.place for row in batch.bad] == [f"{url}:51"]
    assert read_candidates(url, "rank", 1).order == {"q": batch.doc_ids}
    with pytest.raises(PreflightError, match=r"1 line of .*top1000\.dev\.tar\.gz cannot be read"):
        read_candidates(url, "rank", 0)


def test_triples_in_a_tar_resume_where_they_stopped(tmp_path):
    lines = "".join(f"query {i}\trelevant {i}\tother {i}\n" for i in range(2500))
    source = TriplesSource(_write(tmp_path, {"triples.train.small.tsv": lines.encode()}), seed=1)
    assert source.estimated_triples() is None
    stream = source.stream({})
    groups = [next(stream) for _ in range(2600)]
    again = source.stream(groups[2100][1])
    assert [next(again)[0] for _ in range(400)] == [group for group, _ in groups[2101:2501]]


def test_convert_msmarco_reads_a_tar(tmp_path):
    for name, content in (("plain", ROWS), ("packed", ROWS)):
        (tmp_path / name).mkdir()
        url = _write(tmp_path / name, {"top1000.dev": content.encode()}, "top1000.eval.tar.gz")
        if name == "plain":
            url = str(tmp_path / "plain" / "top1000.eval.tsv")
            Path(url).write_text(content)
        arguments = ("convert", "msmarco", url, "--output", str(tmp_path / name / "out"), "--processes", "1")
        done = beamrank_here(*arguments)
        assert done.returncode == 0, done.stderr
    files = [sorted((tmp_path / name / "out").glob("*.tf")) for name in ("plain", "packed")]
    assert [each.read_bytes() for each in files[0]] == [each.read_bytes() for each in files[1]] != []


def test_tar_at_a_store_is_read(tmp_path):
    with fsspec.open("memory://bucket/input.tar.gz", "wb") as file:
        file.write(COMPRESSORS[".gz"](tar_of({"q.txt": b"q 0 d 1\n"})))
    assert read_qrels("memory://bucket/input.tar.gz").relevance == {"q": {"d": 1}}


def test_tar_is_read_in_flat_memory(tmp_path):
    url = _write(tmp_path, {"zeros": bytes(32 << 20)})
    tracemalloc.start()
    with open_stream(url) as file:
        assert sum(map(len, iter(lambda: file.read(1 << 16), b""))) == 32 << 20
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("files", "links", "message"),
    [
        (
            {"a.tsv": b"1\tx\n", "b.tsv": b""},
            (),
            r"several files \('\./folder/a\.tsv', '\./folder/b\.tsv'\): unpack",
        ),
        (
            dict.fromkeys("abcdef", b"1\tx\n"),
            (),
            r"several files \('\./folder/a', .*'\./folder/d', \.\.\.\): unpack",
        ),
        (
            {"a.tsv": b"1\tx\n"},
            ("link",),
            r"several files \('\./folder/a\.tsv', 'link'\): unpack it",
        ),
        ({}, ("link",), "holds 'link', which is a link or a special file: unpack it"),
        ({}, (), "holds no file"),
    ],
)
@pytest.mark.parametrize("name", ["input.tar", "input.tgz"])
def test_tar_of_anything_but_one_file_is_an_error(tmp_path, name, files, links, message):
    url = _write(tmp_path, files, name, links)
    with pytest.raises(DataError, match=rf"input\.{name[6:]} .*{message}"):
        _read(url)
    with pytest.raises(BeamrankError, match=message):
        INPUTS["topics"][1](url)


@each_input
@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.zst"])
def test_truncated_tar_is_an_error(tmp_path, kind, ending):
    content = "".join(INPUTS[kind][0].format(each) for each in IDS).encode()
    packed = ENDINGS[ending](tar_of({"input.txt": content}))
    # A plain archive is complete where its file is; its end mark adds nothing.
    within = len(packed) if ending != ".tar" else packed.index(content) + len(content)
    for cut in (0, 1, 5, within // 4, within // 2, within - 1):
        (tmp_path / f"input{ending}").write_bytes(packed[:cut])
        with pytest.raises(BeamrankError, match=rf"input\{ending}.*(cut short|fetch it again)"):
            INPUTS[kind][1](str(tmp_path / f"input{ending}"))


@pytest.mark.parametrize("content", [b"no archive", b"1\tx\n" * 1000])
def test_file_named_as_a_tar_is_an_error(tmp_path, content):
    for name in ("input.tar", "input.tar.gz", "input.tgz"):
        packed = content if name.endswith(".tar") else COMPRESSORS[".gz"](content)
        (tmp_path / name).write_bytes(packed)
        with pytest.raises(DataError, match=rf"cannot read .*{name}: .*It may be damaged or truncated"):
            _read(str(tmp_path / name))


def test_tar_without_its_ending_is_named(tmp_path):
    _write(tmp_path, {"c.tsv": b"1\tx\n"}, "collection.tar")
    url = str((tmp_path / "collection.tar").rename(tmp_path / "collection.tsv"))
    with pytest.raises(PreflightError, match=r"The file is a tar archive: give it a name that ends in \.tar"):
        list_units(CorpusConfig(path=url))


@pytest.mark.parametrize("cut", [False, True])
def test_damaged_header_after_the_file_is_an_error(tmp_path, cut):
    """It would hide the files behind it."""
    content = bytearray(tar_of({"one": b"x" * 600, "two": b"y" * 600}))
    second = content.index(b"./folder/._two")
    content[second] ^= 1
    path = tmp_path / "two.tar"
    path.write_bytes(content[: second + 100] if cut else content)
    with pytest.raises(DataError, match=r"two\.tar"), open_stream(str(path)) as file:
        file.read()

"""Compressed files and tar archives of one file: every input is read as that file; damaged ones are
errors.
"""

import io
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import fsspec
import pytest

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage.streams import compression, open_stream, without_compression
from tests.support.corpora import COMPRESSORS, bad_rows, each_compression
from tests.support.given_runs import read_given
from tests.support.refusals import refuses

_IDS = [str(number) for number in range(400)]
_TOP1000 = "".join(
    f"q\td{number}\tthe query of all rows\tthe passage {number}\n" for number in range(50)
)


def _corpus_ids(path: str) -> list[str]:
    units = list_units(CorpusConfig(path=path, format="jsonl"))
    return [doc_id for unit in units for batch in read_unit(unit) for doc_id in batch.doc_ids]


# The row of an id and the reader of the ids.
_INPUTS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "run": ("q Q0 {0} 1 -{0} t\n", lambda path: read_run(path).order["q"]),
    "qrels": ("q 0 {0} 1\n", lambda path: list(read_qrels(path).relevance["q"])),
    "topics": (
        "{0}\ttext of {0}\n",
        lambda path: [
            topic.query_id for topic in read_topics(TopicsConfig(path=path, format="tsv"))
        ],
    ),
    "corpus": ('{{"id": "{0}", "contents": "text of {0}"}}\n', _corpus_ids),
}
each_input = pytest.mark.parametrize("kind", _INPUTS)


def _tar(files: Mapping[str, bytes], links: tuple[str, ...] = ()) -> bytes:
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


_TARS = {".tar": _tar, ".TAR.GZ": lambda files: COMPRESSORS[".gz"](_tar(files))} | {
    ending: lambda files, pack=pack: pack(_tar(files))
    for name, pack in COMPRESSORS.items()
    for ending in (f".tar{name}", f".t{name.removeprefix('.')}")
}


def _write_tar(path: Path, files: Mapping[str, bytes], links: tuple[str, ...] = ()) -> str:
    content = _tar(files, links)
    path.write_bytes(COMPRESSORS[".gz"](content) if path.name.endswith("gz") else content)
    return str(path)


def _content(kind: str, ids: list[str] = _IDS) -> bytes:
    return "".join(map(_INPUTS[kind][0].format, ids)).encode()


def _members(kind: str, ending: str, count: int = 2) -> list[bytes]:
    """The input, cut into as many members."""
    size = len(_IDS) // count
    return [
        COMPRESSORS[ending](_content(kind, _IDS[first : first + size]))
        for first in range(0, len(_IDS), size)
    ]


def _read(path: Path, kind: str, content: bytes) -> list[str]:
    path.write_bytes(content)
    return _INPUTS[kind][1](str(path))


@each_input
@each_compression
def test_compressed_file_is_read_whatever_its_members(tmp_path, kind, ending):
    path = tmp_path / f"input{ending}"
    for count in (1, 2, 20):
        assert _read(path, kind, b"".join(_members(kind, ending, count))) == _IDS
    empty = COMPRESSORS[ending](b"")
    first, second = _members(kind, ending)
    assert _read(path, kind, empty + first + empty + second + empty) == _IDS


@each_input
@each_compression
def test_damaged_compressed_file_is_an_error(tmp_path, kind, ending):
    """Python's own readers of .bz2 and .xz end at a damaged second member without an error, and
    lose the rest.
    """
    path = tmp_path / f"input{ending}"
    first, second = _members(kind, ending)
    whole, half = first + second, len(first)
    for cut in (
        0,
        1,
        5,
        half // 2,
        half - 1,
        half + 1,
        half + 5,
        len(whole) // 4 * 3,
        len(whole) - 1,
    ):
        with refuses(BeamrankError, "damaged", file=f"input{ending}"):
            _read(path, kind, whole[:cut])
    plain = _INPUTS[kind][0].format("1").encode()
    for content in (first + b"\x07" + second[1:], first + b"no member", first + b"\n", plain):
        with refuses(BeamrankError, "damaged", file=f"input{ending}"):
            _read(path, kind, content)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_zero_bytes_after_a_compressed_member_are_padding(tmp_path, ending):
    first, second = _members("run", ending)
    assert (
        _read(tmp_path / f"input{ending}", "run", first + bytes(8) + second + bytes(200_000))
        == _IDS
    )


@each_input
@pytest.mark.parametrize("ending", [".zip", ".tar.lz4", ".RAR", ".7z", ".Z", ".0z", ".tar.Z"])
def test_other_packings_are_refused(tmp_path, kind, ending):
    with refuses(PreflightError, "packed", file=f"input{ending}"):
        _read(tmp_path / f"input{ending}", kind, b"PK\3\4 damaged")


@each_input
@each_compression
def test_compressed_file_without_the_ending_is_named(tmp_path, kind, ending):
    with pytest.raises(PreflightError, match=rf" \{ending}$"):
        _read(tmp_path / "input", kind, b"".join(_members(kind, ending)))


@each_input
@pytest.mark.parametrize("ending", _TARS)
def test_tar_of_one_file_is_read_as_the_file(tmp_path, kind, ending):
    assert compression(f"input{ending}") == "tar"
    assert without_compression(f"docs.jsonl{ending}") == "docs.jsonl"
    assert (
        _read(tmp_path / f"input{ending}", kind, _TARS[ending]({"input.txt": _content(kind)}))
        == _IDS
    )


def test_top1000_in_a_tar_is_corpus_and_candidates(tmp_path):
    url = _write_tar(
        tmp_path / "top1000.dev.tar.gz", {"top1000.dev": _TOP1000.encode() + b"broken\n"}
    )
    (unit,) = list_units(CorpusConfig(path=url), unit_bytes=100)
    docs = [
        doc for batch in read_unit(unit) for doc in zip(batch.doc_ids, batch.texts, strict=True)
    ]
    assert docs[-1] == ("d49", "the passage 49")
    assert [row.place for row in bad_rows(CorpusConfig(path=url))] == [f"{url}:51"]
    given = read_given(url)
    assert (given.order, given.rejects.count) == ({"q": [doc_id for doc_id, _ in docs]}, 1)


def test_tar_at_a_store_is_read(tmp_path):
    with fsspec.open("memory://bucket/input.tar.gz", "wb") as file:
        file.write(COMPRESSORS[".gz"](_tar({"q.txt": b"q 0 d 1\n"})))
    assert read_qrels("memory://bucket/input.tar.gz").relevance == {"q": {"d": 1}}


def test_tar_is_read_in_flat_memory(tmp_path):
    url = _write_tar(tmp_path / "input.tar.gz", {"zeros": bytes(32 << 20)})
    tracemalloc.start()
    with open_stream(url) as file:
        assert sum(map(len, iter(lambda: file.read(1 << 16), b""))) == 32 << 20
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("files", "links", "names"),
    [
        ("abc", (), "'./folder/a', './folder/b', "),
        ("a", ("link",), "'./folder/a', 'link', "),
        ("", ("link",), " 'link', "),
        ("", (), ""),
    ],
)
@pytest.mark.parametrize("name", ["input.tar", "input.tgz"])
def test_tar_of_anything_but_one_file_is_an_error(tmp_path, name, files, links, names):
    url = _write_tar(tmp_path / name, dict.fromkeys(files, b"1\tx\n"), links)
    with refuses(BeamrankError, "not-one-file", file=name) as raised:
        _INPUTS["topics"][1](url)
    assert names in str(raised.value)


@each_input
@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.zst"])
def test_truncated_tar_is_an_error(tmp_path, kind, ending):
    content = _content(kind)
    packed = _TARS[ending]({"input.txt": content})
    # A plain archive is complete where its file is; its end mark adds nothing.
    within = len(packed) if ending != ".tar" else packed.index(content) + len(content)
    for cut in (0, 1, 5, within // 4, within // 2, within - 1):
        with refuses(BeamrankError, "damaged", file=f"input{ending}"):
            _read(tmp_path / f"input{ending}", kind, packed[:cut])


@pytest.mark.parametrize("content", [b"no archive", b"1\tx\n" * 1000])
@pytest.mark.parametrize("name", ["input.tar", "input.tar.gz", "input.tgz"])
def test_file_named_as_a_tar_is_an_error(tmp_path, content, name):
    packed = content if name.endswith(".tar") else COMPRESSORS[".gz"](content)
    with refuses(BeamrankError, "damaged", file=name):
        _read(tmp_path / name, "run", packed)


def test_tar_without_its_ending_is_named(tmp_path):
    (tmp_path / "collection.tsv").write_bytes(_tar({"c.tsv": b"1\tx\n"}))
    with pytest.raises(PreflightError, match=r" \.tar"):
        list_units(CorpusConfig(path=str(tmp_path / "collection.tsv")))


@pytest.mark.parametrize("cut", [False, True])
def test_damaged_header_after_the_file_is_an_error(tmp_path, cut):
    """It would hide the files behind it."""
    content = bytearray(_tar({"one": b"x" * 600, "two": b"y" * 600}))
    second = content.index(b"./folder/._two")
    content[second] ^= 1
    path = tmp_path / "two.tar"
    path.write_bytes(content[: second + 100] if cut else content)
    with pytest.raises(DataError, match=r"two\.tar"), open_stream(str(path)) as file:
        file.read()

"""Every input in every compression (gzip, bzip2, xz, zstd), of one member or several; damaged files are errors."""

from collections.abc import Callable
from pathlib import Path

import pytest

from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import COMPRESSORS, each_compression

ROWS = 400


def run_ids(path: str) -> list[str]:
    return read_run(path).order["q"]


def qrels_ids(path: str) -> list[str]:
    return list(read_qrels(path).relevance["q"])


def topic_ids(path: str) -> list[str]:
    return [topic.query_id for topic in read_topics(TopicsConfig(path=path, format="tsv"))]


def corpus_ids(path: str) -> list[str]:
    units = list_units(CorpusConfig(path=path, format="jsonl"))
    return [doc_id for unit in units for batch in read_unit(unit) for doc_id in batch.doc_ids]


# The row of an id and the reader of the ids.
INPUTS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "run": ("q Q0 {0} 1 -{0} t\n", run_ids),
    "qrels": ("q 0 {0} 1\n", qrels_ids),
    "topics": ("{0}\ttext of {0}\n", topic_ids),
    "corpus": ('{{"id": "{0}", "contents": "text of {0}"}}\n', corpus_ids),
}
IDS = [str(number) for number in range(ROWS)]

each_input = pytest.mark.parametrize("kind", INPUTS)


def _members(kind: str, ending: str, count: int = 2) -> list[bytes]:
    """The input, cut into as many members."""
    lines = [INPUTS[kind][0].format(each).encode() for each in IDS]
    size = ROWS // count
    return [COMPRESSORS[ending](b"".join(lines[first : first + size])) for first in range(0, ROWS, size)]


def _read(folder: Path, kind: str, ending: str, content: bytes) -> list[str]:
    path = folder / f"input{ending}"
    path.write_bytes(content)
    return INPUTS[kind][1](str(path))


@each_input
@each_compression
def test_compressed_file_is_read_whatever_its_members(tmp_path, kind, ending):
    for count in (1, 2, 20):
        assert _read(tmp_path, kind, ending, b"".join(_members(kind, ending, count))) == IDS
    empty = COMPRESSORS[ending](b"")
    first, second = _members(kind, ending)
    assert _read(tmp_path, kind, ending, empty + first + empty + second + empty) == IDS


@each_input
@each_compression
def test_truncated_compressed_file_is_an_error(tmp_path, kind, ending):
    first, second = _members(kind, ending)
    whole = first + second
    within = [0, 1, 5, len(first) // 2, len(first) - 1]
    cuts = [*within, len(first) + 1, len(first) + 5, len(whole) // 4 * 3, len(whole) - 1]
    for cut in cuts:
        with pytest.raises(BeamrankError, match=rf"input\{ending}.*(cut short|fetch it again)"):
            _read(tmp_path, kind, ending, whole[:cut])


@each_input
@each_compression
def test_damaged_member_of_a_compressed_file_is_an_error(tmp_path, kind, ending):
    """Python's own readers of .bz2 and .xz end there without an error, and lose the rest."""
    first, second = _members(kind, ending)
    for content in (first + b"\x07" + second[1:], first + b"no member", first + b"\n"):
        with pytest.raises(BeamrankError, match=rf"cannot read .*input\{ending}"):
            _read(tmp_path, kind, ending, content)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_zero_bytes_after_a_compressed_member_are_padding(tmp_path, ending):
    first, second = _members("run", ending)
    assert _read(tmp_path, "run", ending, first + bytes(8) + second + bytes(200_000)) == IDS


@each_input
@each_compression
def test_plain_file_named_as_compressed_is_an_error(tmp_path, kind, ending):
    with pytest.raises(BeamrankError, match=rf"cannot read .*input\{ending}"):
        _read(tmp_path, kind, ending, INPUTS[kind][0].format("1").encode())


@each_input
@pytest.mark.parametrize("ending", [".zip", ".tar.lz4", ".RAR", ".7z", ".lz4"])
def test_archives_are_refused(tmp_path, kind, ending):
    with pytest.raises(PreflightError, match=rf"input\{ending} has a format that beamrank does not read: unpack it"):
        _read(tmp_path, kind, ending, b"PK\3\4 damaged")


@each_input
@each_compression
def test_compressed_file_without_the_ending_is_named(tmp_path, kind, ending):
    message = rf"The file is compressed with \w+: give it a name that ends in \{ending}"
    with pytest.raises(PreflightError, match=message):
        _read(tmp_path, kind, "", b"".join(_members(kind, ending)))

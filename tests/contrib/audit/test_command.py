"""`beamrank audit`: what it finds in outputs that someone changed, and what it may conclude."""

import json
import math
from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from beamrank.commit.plan import read_plan
from beamrank.machine import describe_machine
from contrib.audit import audit as audit_module
from contrib.audit.audit import draw_shards, most_wrong
from models.stages import scoring
from tests.support.checkpoints import save_pair
from tests.support.outputs import files_below
from tests.support.processes import beamrank_here, refused, succeed
from tests.support.small_collection import DOCS, small_cascade


@pytest.fixture
def output(tmp_path):
    """A finished run of two tiny models in four shards."""
    collection = small_cascade(tmp_path)
    collection.run()
    return collection.output


def _forge(output: Path, shard: int, change, stage: str = "duo") -> None:
    """Stores other scores in a shard of the last stage, with a receipt and a manifest that `verify`
    accepts.
    """
    plan = read_plan(str(output))
    record, folder = plan.stage(stage), plan.folder(stage)
    manifest = plan.gather(stage)
    assert manifest is not None
    receipt = manifest.receipts[shard]
    table = folder.read_part(receipt)
    inputs = [found for found in map(plan.gather, record.inputs) if found is not None]
    column = "scores" if stage == "duo" else "score"
    scores = table[column].combine_chunks()
    flat = (scores.flatten() if stage == "duo" else scores).to_numpy(zero_copy_only=False).copy()
    change(flat)
    changed = pa.array(flat, pa.float32())
    changed = pa.ListArray.from_arrays(scores.offsets, changed) if stage == "duo" else changed
    place = table.schema.get_field_index(column)
    for path in [
        *(output / stage).glob("manifest-*.json"),
        *(output / stage).glob(f"receipts/{shard:05}-*.json"),
    ]:
        path.unlink()
    new = table.set_column(place, table.schema.field(place), changed)
    digest = plan.shard_digest(record, shard, [each.receipts[shard] for each in inputs], "")
    folder.commit(shard, digest, new, seconds=1.0, counts=receipt.counts)
    assert plan.seal(stage) is not None


def _add_an_ulp(scores):
    first = int(np.flatnonzero(np.isfinite(scores))[0])
    scores[first] = np.nextafter(scores[first], np.float32(np.inf))


def _reverse(scores):
    scores *= -1


def test_whole_run_agrees_bit_by_bit_and_nothing_is_written(output):
    before = files_below(str(output))
    done = succeed("audit", output)
    assert "scored 4 of 4 shards" in done.stdout
    assert "All agree. " in done.stdout
    assert files_below(str(output)) == before
    audit = json.loads(succeed("audit", output, "--shards", "3", "--json").stdout)
    assert (audit["shards"], len(audit["audited"]), audit["wrong"]) == (4, 3, [])
    assert (audit["most_wrong"], audit["most_wrong_share"]) == (1, 0.25)
    assert "scored 3 of 4 shards" in audit["text"]
    assert "at 95% confidence at most 1 of the 4 shards (25.00%) are wrong" in audit["text"]
    plan = read_plan(str(output))
    assert audit["plan"] == plan.digest[:12]
    by_stage = {stage["stage"]: stage for stage in audit["stages"]}
    assert by_stage.keys() == {"mono", "duo"}
    assert all(
        [shard["shard"] for shard in stage["shards"]] == audit["audited"]
        for stage in by_stage.values()
    )
    parts = pq.ParquetDataset([*(output / "duo").glob("part-*.parquet")]).read(["scores"])
    docs = [math.isqrt(length) for length in pc.list_value_length(parts["scores"]).to_pylist()]
    (whole,) = (
        stage
        for stage in json.loads(succeed("audit", output, "--json").stdout)["stages"]
        if stage["stage"] == "duo"
    )
    pairs = sum(count * (count - 1) for count in docs)
    assert sum(shard["scores"] for shard in whole["shards"]) == pairs > 0


def test_one_bit_of_one_score_is_found(output):
    _forge(output, 2, _add_an_ulp)
    assert beamrank_here("verify", output).returncode == 0
    done = beamrank_here("audit", output)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("duo, shard 2: 1 of ")
    assert lines[0].endswith("; 0 queries are ranked differently")
    assert "1 shard is wrong" in lines[1]
    assert len(lines) == 2


@pytest.mark.parametrize(("change", "code"), [(_add_an_ulp, 0), (_reverse, 1)])
def test_of_another_kind_of_machine_ranks_are_compared(output, change, code, monkeypatch):
    _forge(output, 1, change)
    here = replace(describe_machine(), processor="another processor")
    monkeypatch.setattr(audit_module, "describe_machine", lambda: here)
    done = beamrank_here("audit", output, "--json")
    assert done.returncode == code
    audit = json.loads(done.stdout)
    (duo,) = (stage for stage in audit["stages"] if stage["stage"] == "duo")
    assert all(shard["by_rank"] for shard in duo["shards"])
    (other,) = (shard for shard in duo["shards"] if shard["shard"] == 1)
    assert (other["different"] > 0, bool(other["reranked"])) == (True, bool(code))
    assert audit["wrong"] == [1] * code
    assert "had been scored by another kind of machine, so ranks were compared" in audit["text"]


def test_score_that_only_one_of_both_has_is_wrong(output):
    def lose(scores):
        scores[np.flatnonzero(np.isfinite(scores))[0]] = np.nan

    _forge(output, 0, lose)
    done = beamrank_here("audit", output)
    assert done.returncode == 1
    assert "duo, shard 0: its rows are not those" in done.stdout


def test_output_that_cannot_be_audited_is_refused(output, tmp_path):
    for pattern in ("receipts/*.json", "manifest-*.json"):
        for path in (output / "duo").glob(pattern):
            path.unlink()
    assert "duo is not finished" in succeed("audit", output).stderr
    model = next((tmp_path / "mono").glob("*.safetensors"))
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    # As in a process that has not scored.
    scoring._checkpoint.cache_clear()
    assert "changed since" in refused("audit", output, code=3)
    assert "no beamrank run" in refused("audit", tmp_path, code=3)


def test_scores_of_pairs_are_audited_by_bits_alone(tmp_path, monkeypatch):
    pair, output = save_pair(tmp_path), tmp_path / "out"
    docs = [*list(DOCS.values())[:6], None]
    rows = {
        "id": range(7),
        "query": ["amber basil"] * 7,
        "doc": docs,
        "weight": [0.5, math.nan] * 3 + [1.0],
    }
    pq.write_table(
        pa.table({name: list(values) for name, values in rows.items()}), tmp_path / "pairs.parquet"
    )
    limits = [
        "--max-length",
        "64",
        "--max-query-length",
        "16",
        "--max-bad-rows",
        "1",
        "--shard-rows",
        "4",
    ]
    succeed(
        "score", tmp_path / "pairs.parquet", "--checkpoint", pair.mono, "--output", output, *limits
    )
    audit = json.loads(succeed("audit", output, "--json").stdout)
    assert (audit["audited"], audit["wrong"], audit["stages"][0]["stage"]) == ([0, 1], [], "scores")
    assert [shard["scores"] for shard in audit["stages"][0]["shards"]] == [4, 2]
    _forge(output, 0, _add_an_ulp, "scores")
    done = beamrank_here("audit", output)
    assert done.returncode == 1
    assert done.stdout.startswith("scores, shard 0: 1 of 4 scores differ")
    here = replace(describe_machine(), processor="another processor")
    monkeypatch.setattr(audit_module, "describe_machine", lambda: here)
    message = refused("audit", output, code=3)
    assert "was scored by another kind of machine" in message
    assert "pairs have no ranks to compare" in message


def test_bound_is_that_of_all_draws():
    def chance(wrong: int, audited: int, shards: int, all_wrong: int) -> float:
        draws = (
            comb(all_wrong, count) * comb(shards - all_wrong, audited - count)
            for count in range(wrong + 1)
        )
        return sum(draws) / comb(shards, audited)

    for shards, audited in ((20, 7), (20, 20), (9, 1)):
        for wrong in range(audited + 1):
            possible = range(wrong, shards - (audited - wrong) + 1)
            expected = max(
                count
                for count in possible
                if count == wrong or chance(wrong, audited, shards, count) > 0.05
            )
            assert most_wrong(wrong, audited, shards) == expected
    # The rule of three.
    assert most_wrong(0, 300, 1_000_000) / 1_000_000 == pytest.approx(3 / 300, rel=0.01)


def test_more_shards_of_a_seed_begin_with_the_fewer():
    drawn = draw_shards(1000, 300, 0)
    assert len({*drawn}) == 300
    assert draw_shards(1000, 100, 0) == drawn[:100]
    assert draw_shards(1000, 300, 1) != drawn
    assert sorted(draw_shards(5, 300, 0)) == [0, 1, 2, 3, 4]

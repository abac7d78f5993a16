import subprocess
import sys
from contextvars import copy_context
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from beamrank.commit.working import ShardProgress, current
from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.ranking.input_layout import PackedInputs
from models.architectures.encoder.model import BLOCK_ROWS
from models.checkpoints.checkpoint import resolve_checkpoint
from models.scoring.backends.registry import default_token_budget
from models.scoring.backends.torch import resolve_device, resolve_dtype
from models.scoring.engine import ScoringEngine
from models.scoring.packing import cut_batches, even_budget, fill_batches, fill_blocks, padded_width
from tests.support.checkpoints import save_tiny
from tests.support.models.tables import template


def stretches(text: list[int], count: int, longest: int = 200, segments: int = 2) -> PackedInputs:
    """Neighbouring stretches of a text as queries and docs of many lengths."""
    docs = np.linspace(0, longest - 15, count).astype(int) // (segments - 1)
    kept = np.stack([np.arange(count) % 12, *[docs] * (segments - 1)], axis=1)
    ends = np.cumsum(kept.ravel())
    starts = (ends - kept.ravel()).reshape(kept.shape)
    return PackedInputs(
        np.array([*text[: ends[-1]], 0], np.uint16), starts, kept, template(segments)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_engine_threads_give_the_same_bits(mono_checkpoint, text, dtype):
    inputs = stretches(text, 60)
    checkpoint = resolve_checkpoint(mono_checkpoint, "mono")
    threads_of_this_one = torch.get_num_threads()
    alone, *others = (
        ScoringEngine(checkpoint, "cpu", dtype, threads, 512).score(inputs) for threads in (1, 2, 7)
    )
    assert len(np.unique(alone.log_odds)) > 50
    assert alone.log_odds.dtype == np.float32
    for scores in others:
        assert scores.log_odds.tobytes() == alone.log_odds.tobytes()
        assert (scores.padded_tokens, scores.halvings) == (alone.padded_tokens, 0)
    assert torch.get_num_threads() == threads_of_this_one


def test_engine_budgets_give_the_same_bits(mono_engine, mono_checkpoint, text):
    inputs = stretches(text, 24)
    scores = mono_engine.score(inputs)
    assert scores.padded_tokens % BLOCK_ROWS == 0
    for budget in (1, 8192):
        engine = ScoringEngine(
            resolve_checkpoint(mono_checkpoint, "mono"), "cpu", "float32", 1, budget
        )
        others = engine.score(inputs)
        assert (others.inferences, others.tokens, others.halvings) == (
            24,
            int(inputs.lengths.sum()),
            0,
        )
        assert others.log_odds.tobytes() == scores.log_odds.tobytes()


def test_stage_counts(tmp_path, text):
    engine = ScoringEngine(resolve_checkpoint(save_tiny(tmp_path), "mono"), "cpu", "float32", 1, 64)
    tokens = np.array([number % 1000 for number in range(100)], np.uint16)
    kept = np.array([[2, 10], [2, 4], [3, 20], [0, 0]])
    scores = engine.score(PackedInputs(tokens, np.zeros((4, 2), np.int64), kept, template(2)))
    assert scores.inferences == 4
    assert scores.tokens == 15 + 9 + 26 + 3
    assert scores.padded_tokens == BLOCK_ROWS
    assert scores.halvings == 0


def test_inputs_are_counted_while_a_shard_is_scored(mono_checkpoint, text, monkeypatch):
    engine = ScoringEngine(resolve_checkpoint(mono_checkpoint, "mono"), "cpu", "float32", 1, 512)
    forward, seen, sizes, work = engine._backend.forward, [], [], ShardProgress()

    def counted(batch):
        seen.append((work.done, work.inputs))
        sizes.append(len(batch.lengths))
        return forward(batch)

    monkeypatch.setattr(engine._backend, "forward", counted)
    copy_context().run(lambda: (current.set(work), engine.score(stretches(text, 240))))
    assert len(sizes) > 5
    assert seen == [(sum(sizes[:place]), 240) for place in range(len(sizes))]
    assert work.done == 240


def test_engine_scores_an_empty_shard(mono_engine):
    nothing = np.empty((0, 2), np.int64)
    scores = mono_engine.score(PackedInputs(np.zeros(1, np.uint16), nothing, nothing, template(2)))
    assert scores.log_odds.shape == (0,)
    assert scores.inferences == scores.padded_tokens == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near(mono_engine, mono_checkpoint, text, dtype):
    inputs = stretches(text, 24, 64)
    engine = ScoringEngine(resolve_checkpoint(mono_checkpoint, "mono"), "cpu", dtype, 1, 1024)
    scores, exact = engine.score(inputs).log_odds, mono_engine.score(inputs).log_odds
    difference = np.abs(scores - exact)
    assert 0 < difference.max() < {"bfloat16": 0.5, "float16": 0.05}[dtype]
    assert len(np.unique(scores)) == len(np.unique(exact))


def test_engine_score_is_a_single_logit(tmp_path):
    engine = ScoringEngine(
        resolve_checkpoint(save_tiny(tmp_path, num_labels=1), "mono"), "cpu", "float32", 1, 1024
    )
    weights = load_file(tmp_path / "model.safetensors")
    inputs = PackedInputs(
        np.arange(10, dtype=np.uint16), np.array([[0, 3]]), np.array([[3, 5]]), template(2)
    )
    before = engine.score(inputs).log_odds
    weights["classifier.bias"] += 2.5
    save_file(weights, tmp_path / "model.safetensors")
    engine = ScoringEngine(resolve_checkpoint(str(tmp_path), "mono"), "cpu", "float32", 1, 1024)
    np.testing.assert_allclose(engine.score(inputs).log_odds, before + 2.5, atol=1e-5)


def test_scores_that_are_not_finite_are_refused(tmp_path):
    folder = save_tiny(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][7] = 3e38
    save_file(weights, tmp_path / "model.safetensors")
    engine = ScoringEngine(resolve_checkpoint(folder, "mono"), "cpu", "float32", 1, 1024)
    tokens = np.array([5, 6, 7, 8, 0], np.uint16)
    starts = np.array([[0, 1], [0, 2], [0, 3]])
    with pytest.raises(DataError, match="1 of 3 scores"):
        engine.score(PackedInputs(tokens, starts, np.ones((3, 2), np.int64), template(2)))


def test_engine_refuses_inputs_that_the_model_does_not_know(tmp_path):
    engine = ScoringEngine(
        resolve_checkpoint(save_tiny(tmp_path), "mono"), "cpu", "float32", 1, 1024
    )
    starts = np.array([[0, 0]])
    with pytest.raises(DataError, match="1000"):
        engine.score(
            PackedInputs(np.array([1000], np.uint16), starts, np.array([[1, 1]]), template(2))
        )
    with pytest.raises(DataError, match=r"513 tokens, .*512 positions"):
        engine.score(
            PackedInputs(np.zeros(600, np.uint16), starts, np.array([[10, 500]]), template(2))
        )


# The limit is on address space, so that memory really runs out; a first input lets the libraries
# take theirs.
_SHORT_OF_MEMORY = """
import resource, sys
import numpy as np
from beamrank.commit.working import ShardProgress, current
from beamrank.errors import BeamrankError
from beamrank.ranking.input_layout import PackedInputs
from beamrank.records import SpecialTokens
from models.architectures.families import bert_template
from models.checkpoints.checkpoint import resolve_checkpoint
from models.scoring.engine import ScoringEngine

def inputs(count):
    tokens = np.arange(600, dtype=np.uint16)
    starts = np.stack([np.zeros(count, np.int64), np.arange(count) % 90], axis=1)
    kept = np.stack([np.full(count, 8), np.full(count, 500)], axis=1)
    return PackedInputs(tokens, starts, kept, bert_template(SpecialTokens(2, 3, 0), 2))

checkpoint = resolve_checkpoint(sys.argv[1], "mono")
spare_mebibytes, backend = int(sys.argv[2]), sys.argv[3]
engine = ScoringEngine(checkpoint, "cpu", "float32", 1, 1 << 20, backend)
engine.score(inputs(1))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + spare_mebibytes * 2**20, resource.RLIM_INFINITY))
try:
    engine.score(inputs(4))
except BeamrankError as error:
    print("refused:", error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on address space")
@pytest.mark.parametrize(
    ("backend", "inner", "spare_mebibytes"),
    [("torch", 1 << 18, 100), ("openvino", 1 << 16, 100)],
)
def test_engine_oom_of_a_single_input_is_an_error(tmp_path, backend, inner, spare_mebibytes):
    folder = save_tiny(tmp_path, intermediate_size=inner)
    command = [sys.executable, "-c", _SHORT_OF_MEMORY, folder, str(spare_mebibytes), backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused: cpu runs out of memory with a single input of 51")


def test_devices_and_dtypes():
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_dtype("bfloat16", "cpu") == "bfloat16"
    with pytest.raises(ConfigError, match="float32, bfloat16, float16, not 'int8'"):
        resolve_dtype("int8", "cpu")


@pytest.mark.parametrize(
    ("name", "avx512_bf16", "amx", "dtype"),
    [
        ("AMD EPYC", False, False, "float32"),
        ("AMD EPYC", True, False, "bfloat16"),
        ("Intel Xeon", True, False, "float32"),
        ("Intel Xeon", True, True, "bfloat16"),
    ],
)
def test_dtype_auto_is_bfloat16_where_it_is_fast(monkeypatch, name, avx512_bf16, amx, dtype):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"cpu_name": name, "avx512_bf16": avx512_bf16}
    )
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert resolve_dtype("auto", "cpu") == dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_missing_device_is_refused(tmp_path):
    with pytest.raises(PreflightError, match="CUDA"):
        resolve_device("cuda")
    with pytest.raises(BeamrankError, match="CUDA"):
        ScoringEngine(resolve_checkpoint(save_tiny(tmp_path), "mono"), "cuda", "float32", 1, 1024)


def test_token_budgets():
    assert default_token_budget("cpu") == 4096
    assert default_token_budget("cuda") == 65536


LENGTHS = st.lists(st.integers(3, 512), max_size=200).map(lambda values: np.array(values, np.int64))


@given(lengths=LENGTHS, budget=st.integers(8, 4096))
def test_batch_stays_within_the_token_budget(lengths, budget):
    batches = cut_batches(lengths, budget, 512)
    assert sorted(row for rows in batches for row in rows.tolist()) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or padded_width(lengths[rows], 512) * len(rows) <= budget


@given(lengths=LENGTHS, budget=st.integers(8, 4096))
def test_batches_go_from_long_to_short_and_are_full(lengths, budget):
    batches = cut_batches(lengths, budget, 512)
    for rows, following in pairwise(batches):
        assert lengths[rows].min() >= lengths[following].max()
        assert padded_width(lengths[rows], 512) * (len(rows) + 1) > budget


def test_inputs_of_one_length_stay_in_order():
    batches = cut_batches(np.array([10, 12, 10, 12, 10]), 32, 512)
    assert [rows.tolist() for rows in batches] == [[1, 3], [0, 2], [4]]


def test_batch_width_is_a_multiple_of_8():
    assert padded_width(np.array([3, 9]), 512) == 16
    assert padded_width(np.array([16]), 512) == 16
    assert padded_width(np.array([509]), 510) == 510


@given(lengths=LENGTHS.filter(len), streams=st.integers(1, 8))
def test_streams_get_about_the_same_tokens(lengths, streams):
    budget = even_budget(lengths, 4096, streams)
    assert budget <= 4096
    rounds = -(-int(lengths.sum()) // (4096 * streams))
    assert budget * streams * rounds >= lengths.sum()
    assert budget == 1024 or budget * streams * rounds < lengths.sum() + streams * rounds


def test_budget_of_a_shard_is_cut_evenly():
    lengths = np.full(180, 50)
    assert even_budget(lengths, 4096, 2) == 2250
    assert [len(rows) for rows in fill_batches(lengths, even_budget(lengths, 4096, 2))] == [45] * 4
    assert even_budget(np.full(10, 50), 4096, 2) == 1024


@given(rows=LENGTHS, block=st.sampled_from([64, 256, 1024]))
def test_blocks_take_the_longest_inputs_that_fit(rows, block):
    batches = fill_blocks(rows, block)
    assert sorted(row for some in batches for row in some.tolist()) == list(range(len(rows)))
    for place, some in enumerate(batches):
        room = block - int(rows[some].sum())
        assert room >= 0 or len(some) == 1
        assert all(rows[later].min() > room for later in batches[place + 1 :])
        assert (np.diff(rows[some]) <= 0).all()


def test_long_input_has_a_block_of_its_own():
    assert [some.tolist() for some in fill_blocks(np.array([48, 2000, 16, 32, 16]), 64)] == [
        [1],
        [0, 2],
        [3, 4],
    ]

"""The comparison of engines: its texts, its figures and tables, and one shape with one engine."""

import numpy as np
import pytest
import torch

from beamrank.errors import PreflightError
from benchmarks import machine
from benchmarks.engine import guard
from benchmarks.engine.__main__ import main
from benchmarks.engine.engines import ENGINES, REFERENCE, Measured
from benchmarks.engine.shapes import EMBEDDED
from benchmarks.engine.sorted_batches import Scored, SortedBatches, batch_size
from benchmarks.engine.table import Row, add_row, figures, ndcg, rankings, read_rows, tables
from benchmarks.engine.texts import DEPTH, Inputs, even_inputs
from benchmarks.peers import log_odds_of
from models.checkpoints.checkpoint import resolve_checkpoint


def _row(engine: str, rate: float, shape: str = "MiniLM-L6") -> Row:
    same = {"machine": "a machine", "processor": "avx2", "shape": shape, "engine": engine}
    more = {"padding": None, "tau": 1.0, "overlap": 1.0, "ndcg_change": None}
    return {**same, "inputs": 10, "rate": rate, "peak_share": 0.5, **more}


def _batches() -> SortedBatches:
    """Whose logit is the number of tokens."""
    folder = resolve_checkpoint(EMBEDDED, "mono").folder
    return SortedBatches(
        folder, lambda arrays: arrays[1].sum(axis=1, keepdims=True).astype(np.float32), 1
    )


@pytest.mark.parametrize("segments", [2, 3])
def test_even_inputs_have_so_many_tokens(segments):
    texts = even_inputs(7, 32, segments).texts
    assert len(set(texts)) == 7
    scored = _batches()(texts)
    assert scored.log_odds.tolist() == [32] * 7
    assert (scored.tokens, scored.computed_tokens) == (7 * 32, 7 * 32)


def test_sorted_batches_pad_to_the_longest_of_a_batch():
    texts = [("oven", "door " * count) for count in (1, 9, 2, 8, 9, 9, 9, 8)]
    scored = _batches()(texts)
    assert scored.log_odds.tolist() == [5, 13, 6, 12, 13, 13, 13, 12]
    assert (scored.tokens, scored.computed_tokens) == (87, 4 * 13 + 2 * 12 + 2 * 6)


def test_batches_keep_every_stream_busy():
    assert [batch_size(count, 2) for count in (1, 20, 60, 1000)] == [1, 2, 7, 16]


def test_log_odds_are_of_one_logit_or_two():
    assert log_odds_of(np.array([[1], [2]], np.float32)).tolist() == [1, 2]
    assert log_odds_of(np.array([[1, 3], [2, 1]], np.float32)).tolist() == [2, -1]


def test_three_texts_have_three_token_types():
    ((_, (ids, mask, types)),) = _batches().batches([("oven", "door", "door shut")])
    assert types.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert mask.all()
    assert (ids == ids[0, 2]).sum() == 3


def test_ranking_starts_with_the_best_score():
    assert rankings(np.array([0.5, 2, -1], np.float32)) == {"0": ["1", "0", "2"]}


def test_ndcg_is_that_of_the_relevant_doc():
    scores = np.zeros(2 * DEPTH, np.float32)
    scores[[3, DEPTH, DEPTH + 5]] = 1, 2, 1
    assert ndcg(scores, Inputs([("q", "d")] * len(scores), [3, 5])) == pytest.approx(
        (1 + 1 / np.log2(3)) / 2
    )
    assert ndcg(-np.arange(DEPTH, dtype=np.float32), Inputs([], [10])) == 0


def test_row_compares_with_the_reference():
    inputs = Inputs([("q", "d")] * 4, [0])
    exact, other = (
        Scored(np.array(scores, np.float32), 8, 6) for scores in ([4, 3, 2, 1], [3, 4, 2, 1])
    )
    row = figures(Measured(0.5, other), Measured(2.0, exact), inputs, 0.2)
    assert [row[name] for name in ("rate", "peak_share", "padding", "overlap")] == [8, 0.4, 0.25, 1]
    assert row["tau"] == pytest.approx(2 / 3)
    assert row["ndcg_change"] == pytest.approx(1 / np.log2(3) - 1)


def test_rows_that_are_measured_again_replace_their_own(tmp_path):
    path = tmp_path / "results" / "engine.json"
    rows = [_row("one", 1.0), _row("other", 2.0), _row("one", 3.0), _row("one", 4.0, "BERT-base")]
    for row in rows:
        add_row(path, row)
    assert read_rows(path) == [rows[2], rows[1], rows[3]]
    shown = tables(rows)
    assert shown.count("**MiniLM-L6**") == 1
    assert "| one | 3.0 | 0.500 |  | 1.0000 | 1.000 |  |" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("shared_data")
def test_comparison_is_a_line_for_each_engine(tmp_path, capsys):
    results = tmp_path / "engine.json"
    flags = ["--shapes", "MiniLM-L6", "--threads", "1", "--inputs", "4", "--passes", "1"]
    engines = ["beamrank openvino float32", "OpenVINO bfloat16"]
    main([*flags, "--engines", *engines, "--results", str(results)])
    rows = read_rows(results)
    assert [row["engine"] for row in rows] == [REFERENCE, *engines]
    assert all(row["rate"] > 0 and row["overlap"] > 0 for row in rows)
    assert capsys.readouterr().out == tables(rows) + "\n"


def test_gpu_is_compared_with_the_engines_that_run_there():
    on_gpu = [name for name, engine in ENGINES.items() if "cuda" in engine.devices]
    assert on_gpu[0] == REFERENCE
    assert {"beamrank float16", "sentence-transformers float16"} < set(on_gpu)
    assert not any("onnx" in name.lower() or "openvino" in name.lower() for name in on_gpu)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_comparison_on_a_missing_gpu_is_refused():
    with pytest.raises(PreflightError, match="CUDA"):
        main(["--device", "cuda"])


@pytest.mark.parametrize(
    ("kind", "flags", "code"),
    [
        ("AuthenticAMD avx512_bf16", "avx2 avx512f avx512_bf16", 1),
        ("GenuineIntel avx512_bf16", "avx2 avx512f avx512_bf16", 0),
        ("GenuineIntel amx_bf16", "avx512_bf16 amx_bf16", 1),
        ("AuthenticAMD other", "sse2", 0),
    ],
)
def test_guard_compares_ratios_of_one_maker_and_its_fastest_instructions(
    monkeypatch, kind, flags, code
):
    lines = {"vendor_id": kind.split()[0], "flags": flags}
    monkeypatch.setattr(machine, "cpu_info", lambda key: iter([lines[key]]))
    # Measuring a ratio takes minutes.
    monkeypatch.setattr(guard, "measure_ratio", lambda shape: 1.25)
    assert (machine.processor_kind(), guard.main([])) == (kind, code)

"""`auto` takes the backend that was faster for a model of its kind, if it is installed."""

import importlib.util

import numpy as np
import pytest

from beamrank.errors import ConfigError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from models.scoring.backends import registry
from models.scoring.backends.registry import (
    BACKENDS,
    Device,
    Faster,
    choose_backend,
    faster_backend,
    find_backend,
    processor_kind,
)
from tests.support.checkpoints import save_tiny
from tests.support.models.families import save_case

_TABLE = [
    Faster("avx2", "post-norm", 384, "float32", "openvino"),
    Faster("avx2", "post-norm", 1024, "float32", "torch"),
]


@pytest.mark.parametrize(
    ("processor", "encoder", "width", "dtype", "backend"),
    [
        ("avx2", "post-norm", 384, "float32", "openvino"),
        ("avx2", "post-norm", 500, "float32", "openvino"),
        ("avx2", "post-norm", 768, "float32", "torch"),
        ("avx2", "post-norm", 384, "bfloat16", "torch"),
        ("avx2", "pre-norm", 384, "float32", "torch"),
        ("amx_bf16", "post-norm", 384, "float32", "torch"),
    ],
)
def test_faster_backend_is_that_of_the_nearest_width(processor, encoder, width, dtype, backend):
    assert faster_backend(_TABLE, processor, encoder, width, dtype) == backend


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ("fpu avx2 avx512f avx512_bf16 amx_bf16", "amx_bf16"),
        ("avx2 avx512f avx512_bf16", "avx512_bf16"),
        ("avx2 avx512f", "avx512f"),
        ("sse2 avx2", "avx2"),
        ("sse2", "other"),
    ],
)
def test_processor_kind_is_its_fastest_instructions(monkeypatch, flags, kind):
    monkeypatch.setattr(registry, "cpu_info", lambda key: iter([flags, flags]))
    assert processor_kind() == kind


def _use_table(monkeypatch, encoder, width):
    row = Faster(processor_kind(), encoder, width, "float32", "openvino")
    monkeypatch.setattr(registry, "_measured", lambda: [row])


def test_auto_is_openvino_where_it_was_faster(tmp_path, monkeypatch):
    _use_table(monkeypatch, "pre-norm", 36)
    model = resolve_checkpoint(save_case(tmp_path / "pre", "modernbert cls"), "mono").architecture
    other = resolve_checkpoint(save_case(tmp_path / "post", "bert"), "mono").architecture
    here = find_backend("auto").resolve("cpu", "float32")
    name, device = choose_backend("auto", model, here)
    assert name == "openvino"
    assert device == BACKENDS["openvino"].resolve("cpu", "float32")
    assert choose_backend("auto", other, here) == ("torch", here)
    assert choose_backend("torch", model, here) == ("torch", here)
    on_gpu = Device("cuda", "float16", 1)
    assert choose_backend("auto", model, on_gpu) == ("torch", on_gpu)
    find = importlib.util.find_spec
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "openvino" else find(name))
    assert choose_backend("auto", model, here) == ("torch", here)


def test_reranker_resolves_auto(tmp_path, monkeypatch):
    _use_table(monkeypatch, "post-norm", 36)
    folder, pairs = save_tiny(tmp_path, vocabulary=None), [("oven", "the oven door"), ("door", "it stays shut")]
    chosen, other = (Reranker(folder, dtype="float32", device="cpu", backend=name) for name in ("auto", "torch"))
    assert type(chosen.engine._backend) is BACKENDS["openvino"]
    np.testing.assert_allclose(chosen.score(pairs), other.score(pairs), atol=1e-4)


def test_backend_that_is_unknown_is_refused():
    with pytest.raises(ConfigError, match="backend must be one of auto, openvino, torch, not 'tpu'"):
        find_backend("tpu")


def test_table_names_backends_and_processors_that_exist():
    for row in registry._measured():
        assert row.backend in BACKENDS
        assert row.processor in ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "other")
        assert row.encoder in ("pre-norm", "post-norm")

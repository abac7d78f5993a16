"""Names of backends, and kinds of processors."""

import pytest

from beamrank.errors import ConfigError
from models.reranker import Reranker
from models.scoring.backends import registry
from models.scoring.backends.registry import BACKENDS, find_backend, processor_kind
from tests.support.checkpoints import save_tiny


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


def test_auto_is_torch(tmp_path):
    assert find_backend("auto") is find_backend("torch")
    reranker = Reranker(save_tiny(tmp_path, vocabulary=None), dtype="float32", device="cpu", backend="auto")
    assert type(reranker.engine._backend) is BACKENDS["torch"]


def test_backend_that_is_unknown_is_refused():
    with pytest.raises(ConfigError, match="backend must be one of auto, openvino, torch, not 'tpu'"):
        find_backend("tpu")

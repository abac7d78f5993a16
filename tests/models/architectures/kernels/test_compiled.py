import logging
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.architectures.kernels import compiled
from models.architectures.kernels.compiled import Kernels, Kind, load_kernels, why_torch
from tests import ROOT

_KINDS: tuple[Kind, ...] = get_args(Kind)
_SOURCE = ROOT / "models/architectures/kernels/attention.cpp"
_LENGTHS = [700, 513, 512, 97, 64, 64, 33, 32, 17, 16, 15, 3, 1, 1]


@pytest.fixture(params=_KINDS)
def kernels(request) -> Kernels:
    found = load_kernels(request.param)
    if found is None:
        pytest.skip(why_torch() or f"the processor has no {request.param}")
    return found


def _place(lengths: Sequence[int], step: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    """Where inputs start, their lengths, and which of the rows are theirs, with padding to a
    multiple of `step`.
    """
    counts = torch.tensor(lengths, dtype=torch.int32)
    padded = (counts + step - 1) // step * step
    is_token = torch.cat(
        [torch.arange(int(each)) < count for each, count in zip(padded, counts, strict=True)]
    )
    return (padded.cumsum(0) - padded).int(), counts, F.pad(is_token, (0, 5))


def _vectors(is_token: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    vectors = torch.randn(len(is_token), 3, 2, size, generator=torch.Generator().manual_seed(size))
    vectors[~is_token] = torch.nan
    return vectors.to(dtype)


def _expected(vectors: Tensor, starts: Tensor, lengths: Tensor, window: int) -> Tensor:
    """float32[all tokens, heads * size] of torch."""
    contexts = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        query, key, value = vectors[start : start + length].float().permute(1, 2, 0, 3)
        places = torch.arange(length)
        near = (places[:, None] - places).abs() <= (window or length)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=near)
        contexts.append(context.transpose(0, 1).flatten(1))
    return torch.cat(contexts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("window", [0, 20, 300])
@pytest.mark.parametrize("size", [1, 12, 32, 34, 35, 64, 128])
def test_attention_is_that_of_torch(kernels, size, window, dtype):
    starts, lengths, is_token = _place(_LENGTHS)
    vectors = _vectors(is_token, size, dtype)
    query, key, value = vectors.unbind(1)
    expected = _expected(vectors, starts, lengths, window)
    found = kernels.attention(query, key, value, starts, lengths, window)
    assert not found[~is_token].any()
    error = (found[is_token].float() - expected).square().mean().sqrt()
    assert error <= expected.square().mean().sqrt() * (1e-6 if dtype == torch.float32 else 4e-3)
    firsts = kernels.attention(query[starts], key, value, starts, lengths, window, first=True)
    assert torch.equal(firsts, found[starts])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("size", "window"), [(32, 0), (34, 0), (35, 0), (64, 0), (12, 20), (64, 70)]
)
def test_bits_follow_from_an_input_alone(kernels, size, window, dtype):
    starts, lengths, is_token = _place(_LENGTHS)
    vectors = _vectors(is_token, size, dtype)
    together = kernels.attention(*vectors.unbind(1), starts, lengths, window)[is_token].split(
        _LENGTHS
    )
    alone = vectors[is_token].split(_LENGTHS)
    for step in (1, 16, 48):
        for order in ([13, 6, 1, 8], *([place] for place in range(len(_LENGTHS)))):
            new_starts, new_lengths, kept = _place([_LENGTHS[place] for place in order], step)
            placed = torch.full((len(kept), 3, 2, size), torch.nan, dtype=dtype)
            placed[kept] = torch.cat([alone[place] for place in order])
            found = kernels.attention(*placed.unbind(1), new_starts, new_lengths, window)[kept]
            assert torch.equal(found, torch.cat([together[place] for place in order]))


def test_long_input_is_that_of_torch(kernels):
    starts, lengths, is_token = _place([8192])
    vectors = _vectors(is_token, 8, torch.float32)
    found = kernels.attention(*vectors.unbind(1), starts, lengths)
    torch.testing.assert_close(
        found[is_token], _expected(vectors, starts, lengths, 0), rtol=0, atol=1e-6
    )


def test_threads_and_tiles_of_others_are_left_alone(kernels):
    starts, lengths, is_token = _place(_LENGTHS)
    vectors = _vectors(is_token, 34, torch.bfloat16)
    matrix = torch.randn(64, 64).bfloat16()
    product = matrix @ matrix

    def attend(_: int) -> tuple[Tensor, Tensor]:
        return kernels.attention(*vectors.unbind(1), starts, lengths), matrix @ matrix

    (first, _), *_ = expected = [attend(0)]
    with ThreadPoolExecutor(4) as pool:
        expected += pool.map(attend, range(8))
    assert all(
        torch.equal(context, first) and torch.equal(other, product) for context, other in expected
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [1, 16, 34, 384, 442])
@pytest.mark.parametrize("bias", [True, False])
def test_norm_rounds_the_sum_once(kernels, bias, width, dtype):
    rows, residual = torch.randn(2, 7, width, generator=torch.Generator().manual_seed(width)).to(
        dtype
    )
    weight, shift = torch.randn(2, width)
    total = rows.float() + residual.float()
    expected = F.layer_norm(total, (width,), weight, shift if bias else None, 1e-5)
    found = kernels.residual_norm(rows, residual, weight, shift if bias else None, 1e-5, total=rows)
    torch.testing.assert_close(
        found, expected.to(dtype), rtol=0.008 if dtype == torch.bfloat16 else 1e-5, atol=1e-5
    )
    assert torch.equal(rows, total.to(dtype))


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [([0, 3], [4, 4]), ([0, 5], [4, 4]), ([-1, 3], [4, 4]), ([0, 4], [0, 4]), ([4, 0], [4, 4])],
)
def test_places_outside_of_the_rows_are_refused(kernels, starts, lengths):
    query, key, value = torch.zeros(8, 3, 2, 4).unbind(1)
    places = (torch.tensor(each, dtype=torch.int32) for each in (starts, lengths))
    with pytest.raises(ValueError, match="compiled"):
        kernels.attention(query, key, value, *places)


def test_other_tensors_are_refused(kernels):
    starts, lengths = torch.tensor([[0], [8]], dtype=torch.int32)
    good = torch.zeros(8, 2, 4)
    for bad in (
        good.half(),
        good.double(),
        good.bfloat16(),
        good[:, :1],
        good[:, :, :2],
        good[:4],
        good.mT,
    ):
        with pytest.raises(ValueError, match="compiled"):
            kernels.attention(good, bad, bad, starts, lengths)
    with pytest.raises(ValueError, match="compiled"):
        kernels.residual_norm(good[:, 0], good[:, 0], torch.ones(3), None, 1e-5)


def _library_that(breaks: str, folder, monkeypatch) -> None:
    """Puts a broken library in the place of the installed one."""
    monkeypatch.setattr(compiled, "__file__", str(folder / "compiled.py"))
    library = folder / f"_attention{EXTENSION_SUFFIXES[0]}"
    if breaks == "is no library":
        library.write_bytes(b"\x7fELF and no more")
    elif breaks == "is another":
        shutil.copy(torch._C.__file__, library)
    elif breaks == "finds an old processor":
        library.touch()
        old = type("Library", (), {"kernels_here": staticmethod(lambda: 0)})
        monkeypatch.setattr("ctypes.CDLL", lambda _: old)


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        ("is missing", "install g++"),
        ("is no library", "does not load"),
        ("is another", "does not load"),
        ("finds an old processor", "no AVX-512"),
    ],
)
def test_without_a_library_torch_is_used_after_one_warning(
    breaks, reason, tmp_path, monkeypatch, caplog
):
    _library_that(breaks, tmp_path, monkeypatch)
    compiled._find.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert load_kernels() is None
            assert load_kernels("avx512") is None
        assert reason in why_torch()
        assert [reason in record.getMessage() for record in caplog.records] == [True]
    finally:
        compiled._find.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("sanitized", [False, True])
def test_no_byte_outside_of_the_rows_is_touched(sanitized, tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if sanitized else []
    warnings = ["-Wall", "-Wextra", "-Werror"]
    empty = tmp_path / "empty.cpp"
    empty.write_text("int main() {}\n")
    if subprocess.run(
        [compiler, *options, empty, "-o", tmp_path / "empty"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this g++ has no sanitizers")
    driver = ROOT / "tests/models/architectures/kernels/guarded.cpp"
    built = [
        compiler,
        "-std=c++17",
        "-O3",
        *warnings,
        *options,
        str(_SOURCE),
        str(driver),
        "-o",
        str(tmp_path / "guarded"),
    ]
    done = subprocess.run(built, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([tmp_path / "guarded"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

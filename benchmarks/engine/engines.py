"""The engines that are compared, and how each is measured in a process of its own."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from benchmarks.engine.sorted_batches import (
    Scored,
    batch_size,
    compiled_engine,
    log_odds_of,
    onnx_engine,
    openvino_engine,
)
from benchmarks.engine.texts import Texts
from benchmarks.subprocess_meter import be_quiet
from models.reranker import Reranker, RerankerKind, score_texts

_GPU_BATCH_SIZE = 256
_PEAK_SIZES = {"cpu": 2048, "cuda": 8192}
REFERENCE = "beamrank float32"
_BOTH = ("cpu", "cuda")

Score = Callable[[Sequence[Texts]], Scored]


class Place(NamedTuple):
    """The device of an engine, `cpu` or `cuda`, and its threads on a CPU."""

    device: str
    threads: int


class Model(NamedTuple):
    """A checkpoint's folder, its use, and some texts to calibrate int8 with."""

    folder: str
    kind: RerankerKind
    calibration: Sequence[Texts] = ()


@dataclass(frozen=True)
class Engine:
    """How an engine is loaded, and where it runs.

    Attributes:
        load: makes what scores texts.
        needs: the packages that it needs.
        devices: where it runs.
        slow_to_load: it takes so long to load that only some shapes have it, unless it is named.
        kinds: the uses of a checkpoint that it knows.
    """

    load: Callable[[Model, Place], Score]
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    slow_to_load: bool = False
    kinds: tuple[RerankerKind, ...] = ("mono", "duo")

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def _beamrank(backend: str, dtype: str, model: Model, place: Place, kernel: str = "auto") -> Score:
    reranker = Reranker(
        model.folder,
        model.kind,
        dtype=dtype,
        device=place.device,
        threads=place.threads,
        backend=backend,
        kernel=kernel,
        truncation="hf" if model.kind == "mono" else "original",
    )

    def score(texts: Sequence[Texts]) -> Scored:
        columns = list(zip(*texts, strict=True))
        log_odds, counts = score_texts(
            reranker.engine, reranker.tokenizer, reranker.limits, columns
        )
        return Scored(log_odds, counts.padded_tokens, counts.tokens)

    return score


def _cross_encoder(backend: str, dtype: str, attention: str, model: Model, place: Place) -> Score:
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(place.threads)
    options = {"dtype": dtype, "attn_implementation": attention} if backend == "torch" else {}
    encoder = CrossEncoder(
        model.folder,
        device=place.device,
        max_length=512,
        backend=backend,
        activation_fn=torch.nn.Identity(),
        model_kwargs=options,
    )

    def score(texts: Sequence[Texts]) -> Scored:
        size = batch_size(len(texts), 1) if place.device == "cpu" else _GPU_BATCH_SIZE
        scores = encoder.predict(list(texts), batch_size=size, show_progress_bar=False)
        return Scored(log_odds_of(np.asarray(scores, np.float32).reshape(len(texts), -1)))

    return score


def _openvino(precision: str, model: Model, place: Place) -> Score:
    return openvino_engine(precision, model.folder, place.threads, model.calibration)


def _onnx(precision: str, model: Model, place: Place) -> Score:
    return onnx_engine(precision, model.folder, place.threads)


def _compiled(dtype: str, model: Model, place: Place) -> Score:
    return compiled_engine(dtype, model.folder, place.threads)


def _st(
    load: Callable[[Model, Place], Score], *needs: str, devices: tuple[str, ...] = ("cpu",)
) -> Engine:
    return Engine(load, ("sentence_transformers", *needs), devices, kinds=("mono",))


ENGINES = {
    REFERENCE: Engine(partial(_beamrank, "torch", "float32"), devices=_BOTH),
    "beamrank bfloat16": Engine(partial(_beamrank, "torch", "bfloat16"), devices=_BOTH),
    "beamrank float32, torch's attention": Engine(
        partial(_beamrank, "torch", "float32", kernel="torch")
    ),
    "beamrank bfloat16, torch's attention": Engine(
        partial(_beamrank, "torch", "bfloat16", kernel="torch")
    ),
    "beamrank float16": Engine(partial(_beamrank, "torch", "float16"), devices=("cuda",)),
    "beamrank openvino float32": Engine(partial(_beamrank, "openvino", "float32"), ("openvino",)),
    "beamrank openvino bfloat16": Engine(partial(_beamrank, "openvino", "bfloat16"), ("openvino",)),
    "OpenVINO bfloat16": Engine(partial(_openvino, "bfloat16"), ("openvino",)),
    "OpenVINO int8": Engine(partial(_openvino, "int8"), ("openvino", "nncf"), slow_to_load=True),
    "ONNX Runtime float32": Engine(
        partial(_onnx, "float32"), ("onnxruntime", "onnx"), slow_to_load=True
    ),
    "ONNX Runtime int8": Engine(partial(_onnx, "int8"), ("onnxruntime", "onnx"), slow_to_load=True),
    "torch.compile bfloat16": Engine(partial(_compiled, "bfloat16"), slow_to_load=True),
    "sentence-transformers float32": _st(partial(_cross_encoder, "torch", "float32", "sdpa")),
    "sentence-transformers bfloat16": _st(partial(_cross_encoder, "torch", "bfloat16", "sdpa")),
    "sentence-transformers float16": _st(
        partial(_cross_encoder, "torch", "float16", "sdpa"), devices=("cuda",)
    ),
    "sentence-transformers float16, FlashAttention 2": _st(
        partial(_cross_encoder, "torch", "float16", "flash_attention_2"),
        "flash_attn",
        devices=("cuda",),
    ),
    "sentence-transformers onnx": _st(
        partial(_cross_encoder, "onnx", "", ""), "optimum", "onnxruntime"
    ),
    "sentence-transformers openvino": _st(
        partial(_cross_encoder, "openvino", "", ""), "optimum", "openvino"
    ),
}


class Measured(NamedTuple):
    """The best pass over some inputs."""

    seconds: float
    scored: Scored


def measure(
    name: str, model: Model, inputs: Sequence[Sequence[Texts]], place: Place, passes: int
) -> list[Measured]:
    """Scores each list of inputs, after a first pass over a quarter of it, which spans its
    lengths.
    """
    be_quiet()
    score = ENGINES[name].load(model, place)
    found = []
    for texts in inputs:
        score(texts[::4])
        timed = []
        for _ in range(passes):
            start = time.perf_counter()
            scored = score(texts)
            timed.append(Measured(time.perf_counter() - start, scored))
        found.append(min(timed, key=lambda each: each.seconds))
    return found


_loaded: list[Score] = []


def load_engine(name: str, model: Model, place: Place) -> None:
    """Loads the engine of this process, for `time_pass`."""
    be_quiet()
    _loaded.append(ENGINES[name].load(model, place))


def time_pass(texts: Sequence[Texts]) -> float:
    """The seconds in which the engine of this process scores some texts."""
    start = time.perf_counter()
    _loaded[0](texts)
    return time.perf_counter() - start


def peak_flops(place: Place) -> float:
    """The best rate of one square product of random numbers in any dtype, in floating-point
    operations per second.
    """
    import torch

    torch.set_num_threads(place.threads)
    wait: Callable[[], object] = torch.cuda.synchronize if place.device == "cuda" else list
    rates, size = [], _PEAK_SIZES[place.device]
    for dtype in (
        torch.float32,
        torch.bfloat16,
        *((torch.float16,) if place.device == "cuda" else ()),
    ):
        matrix = torch.randn(size, size, device=place.device).to(dtype)
        for _ in range(5):
            wait()
            start = time.perf_counter()
            torch.mm(matrix, matrix)
            wait()
            rates.append(2 * size**3 / (time.perf_counter() - start))
    return max(rates)

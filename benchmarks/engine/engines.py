"""The engines that are compared, and how each is measured in a process of its own."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

from benchmarks.engine.sorted_batches import Scored, batch_size, openvino_engine
from benchmarks.engine.texts import Texts
from benchmarks.peers import CrossEncoderPeer, CrossEncoderSetting
from benchmarks.subprocess_meter import be_quiet
from models.reranker import Reranker, RerankerKind, score_texts

_GPU_BATCH_SIZE = 256
REFERENCE = "beamrank float32"
_BOTH = ("cpu", "cuda")

Score = Callable[[Sequence[Texts]], Scored]


class Place(NamedTuple):
    """The device of an engine, `cpu` or `cuda`, and its threads on a CPU."""

    device: str
    threads: int


class Model(NamedTuple):
    """A checkpoint's folder, and its use."""

    folder: str
    kind: RerankerKind


class Engine(NamedTuple):
    """How an engine is loaded, and where it runs.

    Attributes:
        load: makes what scores texts.
        devices: where it runs.
        needs: the packages that it needs.
        kinds: the uses of a checkpoint that it knows.
    """

    load: Callable[[Model, Place], Score]
    devices: tuple[str, ...] = ("cpu",)
    needs: tuple[str, ...] = ()
    kinds: tuple[RerankerKind, ...] = ("mono", "duo")

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def beamrank(
    dtype: str, model: Model, place: Place, backend: str = "torch", kernel: str = "auto"
) -> Score:
    """Loads our engine."""
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


def cross_encoder(setting: CrossEncoderSetting, model: Model, place: Place) -> Score:
    """Loads sentence-transformers' engine."""
    import torch

    torch.set_num_threads(place.threads)
    peer = CrossEncoderPeer(model.folder, setting, place.device)

    def score(texts: Sequence[Texts]) -> Scored:
        peer.batch_size = setting.batch_size or batch_size(len(texts), 1)
        return Scored(peer.score(texts))

    return score


def _peer(setting: CrossEncoderSetting, *needs: str, devices: tuple[str, ...] = ("cpu",)) -> Engine:
    load = partial(cross_encoder, setting)
    return Engine(load, devices, ("sentence_transformers", *needs), ("mono",))


def _openvino(model: Model, place: Place) -> Score:
    return openvino_engine(model.folder, place.threads)


ENGINES = {
    REFERENCE: Engine(partial(beamrank, "float32"), _BOTH),
    "beamrank bfloat16": Engine(partial(beamrank, "bfloat16"), _BOTH),
    "beamrank float32, torch's attention": Engine(partial(beamrank, "float32", kernel="torch")),
    "beamrank bfloat16, torch's attention": Engine(partial(beamrank, "bfloat16", kernel="torch")),
    "beamrank float16": Engine(partial(beamrank, "float16"), ("cuda",)),
    **{
        f"beamrank openvino {dtype}": Engine(
            partial(beamrank, dtype, backend="openvino"), needs=("openvino",)
        )
        for dtype in ("float32", "bfloat16")
    },
    "OpenVINO bfloat16": Engine(_openvino, needs=("openvino",)),
    "sentence-transformers bfloat16": _peer(CrossEncoderSetting(None, "bfloat16")),
    "sentence-transformers float16": _peer(
        CrossEncoderSetting(_GPU_BATCH_SIZE, "float16"), devices=("cuda",)
    ),
    "sentence-transformers float16, FlashAttention 2": _peer(
        CrossEncoderSetting(_GPU_BATCH_SIZE, "float16", "flash_attention_2"),
        "flash_attn",
        devices=("cuda",),
    ),
}


class Measured(NamedTuple):
    """The best pass over some inputs."""

    seconds: float
    scored: Scored


def measure(
    load: Callable[[Model, Place], Score],
    model: Model,
    texts: Sequence[Texts],
    place: Place,
    passes: int,
) -> Measured:
    """Scores the inputs, after a first pass over a quarter of them, which spans their lengths."""
    load_engine(load, model, place)
    time_pass(texts[::4])
    return min((time_pass(texts) for _ in range(passes)), key=lambda one: one.seconds)


_loaded: list[Score] = []


def load_engine(load: Callable[[Model, Place], Score], model: Model, place: Place) -> None:
    """Loads the engine of this process, for `time_pass`."""
    be_quiet()
    _loaded.append(load(model, place))


def time_pass(texts: Sequence[Texts]) -> Measured:
    """One pass of the engine of this process over some texts."""
    start = time.perf_counter()
    scored = _loaded[-1](texts)
    return Measured(time.perf_counter() - start, scored)


def peak_flops(place: Place) -> float:
    """The best rate of one square product of random numbers in any dtype, in floating-point
    operations per second.
    """
    import torch

    torch.set_num_threads(place.threads)
    on_gpu = place.device == "cuda"
    wait: Callable[[], object] = torch.cuda.synchronize if on_gpu else list
    rates = []
    size = 8192 if on_gpu else 2048
    # A processor with neither AMX nor AVX-512 takes minutes for one product in bfloat16.
    count = 3 if on_gpu else 1 + torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for dtype in (torch.float32, torch.bfloat16, torch.float16)[:count]:
        matrix = torch.randn(size, size, device=place.device).to(dtype)
        for _ in range(5):
            wait()
            start = time.perf_counter()
            torch.mm(matrix, matrix)
            wait()
            rates.append(2 * size**3 / (time.perf_counter() - start))
    return max(rates)

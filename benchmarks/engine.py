"""Compares engines that score the same pairs on one device, from texts to log-odds, for checkpoints of many shapes.

    python -m benchmarks.engine [--shapes MiniLM-L6 BERT-base] [--tokens real 128] [--pairs 300] [--threads 1]
    python -m benchmarks.engine --device cuda

Each engine runs in a process of its own, all of them in turn, and the best of the rounds counts. The weights are
random: speed does not depend on them. The texts are questions and paragraphs of SQuAD, whole (`real`) or repeated and
cut to a number of tokens. An engine that is not installed is named and left out. Prints a table for each shape. The
defaults for a GPU are chosen so that the whole takes less than ten minutes.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beamrank.evaluation.agreement import agreement
from beamrank.machine import usable_cores
from benchmarks.datasets.squad import read_squad
from benchmarks.peers import Pair
from benchmarks.subprocess_meter import be_quiet, run_apart
from models.checkpoints.check import resolve_checkpoint
from models.scoring.backends.torch import resolve_device

SHAPES = {
    "MiniLM-L6": (6, 384, 12),
    "MiniLM-L12": (12, 384, 12),
    "BERT-base": (12, 768, 12),
    "BERT-large": (24, 1024, 16),
}
_DEPTH = 50
_BATCH_SIZES = {"cpu": 32, "cuda": 256}
_PEAK_SIZES = {"cpu": 2048, "cuda": 8192}

# The defaults of each device: a GPU needs more pairs, and its processes take longer to start.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "cpu": {"shapes": list(SHAPES), "tokens": ["real", "32", "128", "256", "512"], "pairs": 300, "rounds": 3},
    "cuda": {"shapes": ["MiniLM-L6", "BERT-large"], "tokens": ["real"], "pairs": 10_000, "rounds": 2},
}

Log = npt.NDArray[np.float32]
Score = Callable[[Sequence[Pair]], Log]


class Place(NamedTuple):
    """The device of an engine, `cpu` or `cuda`, and its threads on a CPU."""

    device: str
    threads: int


@dataclass(frozen=True)
class Engine:
    """How an engine is loaded, the packages that it needs, and where it runs."""

    load: Callable[[str, Place], Score]
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def _beamrank(dtype: str, folder: str, place: Place) -> Score:
    from models.reranker import Reranker

    return Reranker(folder, "mono", dtype=dtype, device=place.device, threads=place.threads, truncation="hf").score


def _cross_encoder(backend: str, dtype: str, attention: str, folder: str, place: Place) -> Score:
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(place.threads)
    options = {"dtype": dtype, "attn_implementation": attention} if backend == "torch" else {}
    model = CrossEncoder(
        folder,
        device=place.device,
        max_length=512,
        backend=backend,
        activation_fn=torch.nn.Identity(),
        model_kwargs=options,
    )
    batch_size = _BATCH_SIZES[place.device]
    return partial(model.predict, batch_size=batch_size, show_progress_bar=False)


_BOTH = ("cpu", "cuda")
ENGINES = {
    "beamrank float32": Engine(partial(_beamrank, "float32"), devices=_BOTH),
    "beamrank bfloat16": Engine(partial(_beamrank, "bfloat16"), devices=_BOTH),
    "beamrank float16": Engine(partial(_beamrank, "float16"), devices=("cuda",)),
    "sentence-transformers float32": Engine(partial(_cross_encoder, "torch", "float32", "sdpa")),
    "sentence-transformers bfloat16": Engine(partial(_cross_encoder, "torch", "bfloat16", "sdpa")),
    "sentence-transformers float16": Engine(partial(_cross_encoder, "torch", "float16", "sdpa"), devices=("cuda",)),
    "sentence-transformers float16, FlashAttention 2": Engine(
        partial(_cross_encoder, "torch", "float16", "flash_attention_2"), ("flash_attn",), ("cuda",)
    ),
    "sentence-transformers onnx": Engine(
        partial(_cross_encoder, "onnx", "float32", "sdpa"), ("optimum", "onnxruntime")
    ),
    "sentence-transformers openvino": Engine(
        partial(_cross_encoder, "openvino", "float32", "sdpa"), ("optimum", "openvino")
    ),
}


def measure(name: str, folder: str, pairs: Sequence[Pair], place: Place) -> tuple[float, Log]:
    """Seconds for all pairs after a first pass over some of them, and the log-odds."""
    be_quiet()
    score = ENGINES[name].load(folder, place)
    score(pairs[::4])
    start = time.perf_counter()
    scores = np.asarray(score(pairs)).reshape(len(pairs))
    return time.perf_counter() - start, scores


def peak_flops(place: Place) -> float:
    """The best rate of one square product of random numbers in any dtype, in floating-point operations per second."""
    import torch

    torch.set_num_threads(place.threads)
    wait: Callable[[], object] = torch.cuda.synchronize if place.device == "cuda" else list
    rates, size = [], _PEAK_SIZES[place.device]
    for dtype in (torch.float32, torch.bfloat16, *((torch.float16,) if place.device == "cuda" else ())):
        matrix = torch.randn(size, size, device=place.device).to(dtype)
        for _ in range(5):
            wait()
            start = time.perf_counter()
            torch.mm(matrix, matrix)
            wait()
            rates.append(2 * size**3 / (time.perf_counter() - start))
    return max(rates)


def save_random(folder: Path, shape: str) -> str:
    """Saves a cross-encoder of a shape with the vocabulary of the embedded pair."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    layers, hidden, heads = SHAPES[shape]
    tokenizer = AutoTokenizer.from_pretrained(resolve_checkpoint("embedded:mono", "mono").folder)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def real_pairs(archive: Path, count: int) -> list[Pair]:
    """Questions of SQuAD's dev part, each with 50 paragraphs."""
    squad = read_squad(archive)
    stride = max(1, len(squad.passages) // count)
    return [
        (squad.topics[place // _DEPTH * stride].text, squad.passages[place * stride % len(squad.passages)].text)
        for place in range(count)
    ]


def even_pairs(count: int, tokens: int) -> list[Pair]:
    """Pairs of so many tokens, special tokens included, of random words that are tokens."""
    vocabulary = Path(resolve_checkpoint("embedded:mono", "mono").folder, "vocab.txt").read_text("utf-8").split("\n")
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()]
    drawn = np.random.default_rng(0).choice(words, (count, tokens - 3))
    return [(" ".join(row[:8]), " ".join(row[8:])) for row in drawn.tolist()]


def compare(folder: str, pairs: Sequence[Pair], names: Sequence[str], place: Place, rounds: int) -> str:
    """A table with a line for each engine: pairs/s, its share of the peak, its agreement with the first engine."""
    best: dict[str, float] = {}
    scores: dict[str, Log] = {}
    for _ in range(rounds):
        for name in names:
            seconds, scores[name] = run_apart(measure, name, folder, list(pairs), place)
            best[name] = min(best.get(name, seconds), seconds)
    peak = run_apart(peak_flops, place)
    flops = 2 * resolve_checkpoint(folder, "mono").architecture.token_cost * _count_tokens(pairs)
    compared = f"Kendall's tau with {names[0]} | overlap@10"
    lines = [f"| engine | pairs/s | share of the matmul peak | {compared} |", "|---|---|---|---|---|"]
    for name, seconds in best.items():
        agreed = agreement(_rankings(scores[name]), _rankings(scores[names[0]])).means
        figures = f"{len(pairs) / seconds:.1f} | {flops / seconds / peak:.3f} | {agreed['tau']:.4f}"
        lines.append(f"| {name} | {figures} | {agreed['overlap@10']:.3f} |")
    return "\n".join(lines)


def _count_tokens(pairs: Sequence[Pair]) -> int:
    """Tokens of the inputs, special tokens included."""
    from models.tokenizer.registry import load_tokenizer

    tokenizer = load_tokenizer(resolve_checkpoint("embedded:mono", "mono").folder)
    lengths = [len(tokenizer.encode(list(texts), 512).ids.values) for texts in zip(*pairs, strict=True)]
    return min(sum(lengths) + 3 * len(pairs), 512 * len(pairs))


def _rankings(scores: Log) -> dict[str, list[str]]:
    """The order of each question's paragraphs."""
    starts = range(0, len(scores), _DEPTH)
    return {str(start): [str(doc) for doc in np.argsort(-scores[start : start + _DEPTH])] for start in starts}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables."""
    options = _parser().parse_args(arguments)
    for name, default in _DEFAULTS[options.device].items():
        setattr(options, name, getattr(options, name) or default)
    place = Place(options.device, options.threads)
    wanted = [name for name in options.engines if options.device in ENGINES[name].devices]
    names = [name for name in wanted if not ENGINES[name].missing]
    for name in wanted:
        if missing := ENGINES[name].missing:
            print(f"left out: {name} (not installed: {', '.join(missing)})", flush=True)
    print(f"{_described(place)}, {options.pairs} pairs, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="beamrank-bench-") as work:
        for shape in options.shapes:
            folder = save_random(Path(work, shape), shape)
            for tokens in options.tokens:
                real = tokens == "real"
                pairs = real_pairs(options.squad, options.pairs) if real else even_pairs(options.pairs, int(tokens))
                table = compare(folder, pairs, names, place, options.rounds)
                print(f"\n{shape}, {tokens} tokens\n\n{table}", flush=True)


def _described(place: Place) -> str:
    """The device, for the head of the tables."""
    if place.device == "cpu":
        return f"{place.threads} threads"
    import torch

    resolve_device(place.device)
    return torch.cuda.get_device_name()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, archive = parser.add_argument, Path(__file__).parents[2] / "shared" / "data" / "squad_v1.1.tar.gz"
    defaults = {
        name: ", or on a GPU ".join(str(each[name]) for each in _DEFAULTS.values()) for name in _DEFAULTS["cpu"]
    }
    add("--device", choices=list(_DEFAULTS), default="cpu", help="(%(default)s)")
    add("--shapes", nargs="+", choices=SHAPES, help=f"({defaults['shapes']})")
    add("--engines", nargs="+", default=list(ENGINES), choices=ENGINES, metavar="ENGINE", help=", ".join(ENGINES))
    add("--tokens", nargs="+", help=f"of an input ({defaults['tokens']})")
    add("--pairs", type=int, help=f"({defaults['pairs']})")
    add("--threads", type=int, default=usable_cores(), help="(%(default)s)")
    add("--rounds", type=int, help=f"the best of them counts ({defaults['rounds']})")
    add("--squad", type=Path, default=archive, help="SQuAD 1.1 as HTML pages in a tar.gz")
    return parser


if __name__ == "__main__":
    main()

"""Compares engines that score the same pairs on this CPU, from texts to log-odds, for checkpoints of many shapes.

    python -m benchmarks.engine [--shapes MiniLM-L6 BERT-base] [--tokens real 128] [--pairs 300] [--threads 1]

Each engine runs in a process of its own, all of them in turn, and the best of the rounds counts. The weights are
random: speed does not depend on them. The texts are questions and paragraphs of SQuAD, whole (`real`) or repeated and
cut to a number of tokens. An engine that is not installed is named and left out. Prints a table for each shape.
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

import numpy as np
import numpy.typing as npt

from beamrank.evaluation.agreement import agreement
from beamrank.machine import usable_cores
from benchmarks.datasets.squad import read_squad
from benchmarks.peers import Pair
from benchmarks.subprocess_meter import be_quiet, run_apart
from models.checkpoints.check import resolve_checkpoint

SHAPES = {
    "MiniLM-L6": (6, 384, 12),
    "MiniLM-L12": (12, 384, 12),
    "BERT-base": (12, 768, 12),
    "BERT-large": (24, 1024, 16),
}
_DEPTH = 50
_BATCH_SIZE = 32
_PEAK_SIZE = 2048

Log = npt.NDArray[np.float32]
Score = Callable[[Sequence[Pair]], Log]


@dataclass(frozen=True)
class Engine:
    """How an engine is loaded, and the packages that it needs."""

    load: Callable[[str, int], Score]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def _beamrank(dtype: str, folder: str, threads: int) -> Score:
    from models.reranker import Reranker

    return Reranker(folder, "mono", dtype=dtype, device="cpu", threads=threads, truncation="hf").score


def _cross_encoder(backend: str, dtype: str, folder: str, threads: int) -> Score:
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    options = {"dtype": dtype} if backend == "torch" else {}
    model = CrossEncoder(
        folder,
        device="cpu",
        max_length=512,
        backend=backend,
        activation_fn=torch.nn.Identity(),
        model_kwargs=options,
    )
    return partial(model.predict, batch_size=_BATCH_SIZE, show_progress_bar=False)


ENGINES = {
    "beamrank float32": Engine(partial(_beamrank, "float32")),
    "beamrank bfloat16": Engine(partial(_beamrank, "bfloat16")),
    "sentence-transformers float32": Engine(partial(_cross_encoder, "torch", "float32")),
    "sentence-transformers bfloat16": Engine(partial(_cross_encoder, "torch", "bfloat16")),
    "sentence-transformers onnx": Engine(partial(_cross_encoder, "onnx", "float32"), ("optimum", "onnxruntime")),
    "sentence-transformers openvino": Engine(partial(_cross_encoder, "openvino", "float32"), ("optimum", "openvino")),
}


def measure(name: str, folder: str, pairs: Sequence[Pair], threads: int) -> tuple[float, Log]:
    """Seconds for all pairs after a first pass over some of them, and the log-odds."""
    be_quiet()
    score = ENGINES[name].load(folder, threads)
    score(pairs[::4])
    start = time.perf_counter()
    scores = np.asarray(score(pairs)).reshape(len(pairs))
    return time.perf_counter() - start, scores


def peak_flops(threads: int) -> float:
    """The best rate of one square product in bfloat16 or float32, in floating-point operations per second."""
    import torch

    torch.set_num_threads(threads)
    rates = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(_PEAK_SIZE, _PEAK_SIZE, dtype=dtype)
        for _ in range(5):
            start = time.perf_counter()
            torch.mm(matrix, matrix)
            rates.append(2 * _PEAK_SIZE**3 / (time.perf_counter() - start))
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


def compare(folder: str, pairs: Sequence[Pair], names: Sequence[str], threads: int, rounds: int) -> str:
    """A table with a line for each engine: pairs/s, its share of the peak, its agreement with the first engine."""
    best: dict[str, float] = {}
    scores: dict[str, Log] = {}
    for _ in range(rounds):
        for name in names:
            seconds, scores[name] = run_apart(measure, name, folder, list(pairs), threads)
            best[name] = min(best.get(name, seconds), seconds)
    peak = run_apart(peak_flops, threads)
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
    names = [name for name in ENGINES if name in options.engines and not ENGINES[name].missing]
    for name in options.engines:
        if missing := ENGINES[name].missing:
            print(f"left out: {name} (not installed: {', '.join(missing)})", flush=True)
    print(f"{options.pairs} pairs, {options.threads} threads, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="beamrank-bench-") as work:
        for shape in options.shapes:
            folder = save_random(Path(work, shape), shape)
            for tokens in options.tokens:
                real = tokens == "real"
                pairs = real_pairs(options.squad, options.pairs) if real else even_pairs(options.pairs, int(tokens))
                table = compare(folder, pairs, names, options.threads, options.rounds)
                print(f"\n{shape}, {tokens} tokens\n\n{table}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, archive = parser.add_argument, Path(__file__).parents[2] / "shared" / "data" / "squad_v1.1.tar.gz"
    add("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES, help="(%(default)s)")
    add("--engines", nargs="+", default=list(ENGINES), choices=ENGINES, metavar="ENGINE", help=", ".join(ENGINES))
    add("--tokens", nargs="+", default=["real", "32", "128", "256", "512"], help="of an input (%(default)s)")
    add("--pairs", type=int, default=300, help="(%(default)s)")
    add("--threads", type=int, default=usable_cores(), help="(%(default)s)")
    add("--rounds", type=int, default=3, help="the best of them counts (%(default)s)")
    add("--squad", type=Path, default=archive, help="SQuAD 1.1 as HTML pages in a tar.gz")
    return parser


if __name__ == "__main__":
    main()

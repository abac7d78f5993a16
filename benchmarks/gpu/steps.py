"""The steps of the first look, in the order of their use; each yields rows of figures."""

import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache, partial, wraps
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from beamrank import read_run, rerank, write_run
from beamrank.demo.collection import demo_questions, stdlib_docs, write_collection
from beamrank.errors import BeamrankError
from beamrank.machine import describe_machine, usable_cores
from benchmarks.engine import engines
from benchmarks.gpu.checkpoints import DUO, FIRST, MODELS, QWEN, Setup, checkpoint, inputs, load
from benchmarks.peers import CrossEncoderSetting
from benchmarks.subprocess_meter import be_quiet, run_apart
from models.checkpoints.files import tensor_shapes
from models.reranker import Reranker

Row = dict[str, Any]

_COMPARED = 64
_TRIALS = {FIRST: 1000}
_FEWER_TRIALS = 100
# MS MARCO's passages have 155 tokens with a query.
_LENGTHS = (155, 32, 512)
# The others take many seconds to load.
_IN_ALL_DTYPES = MODELS[:2]
_RATED_IN_ALL = [(name, _LENGTHS[0]) for name in _IN_ALL_DTYPES]
# So many floating-point operations take a card a second, and a CPU a fraction of one.
_WORK, _TINY_WORK = 2e14, 2e9
_MOST_INPUTS = 20_000
_TEXTS, _PEER_BATCH = 4000, 256
_SPARE_BYTES = 512 << 20
_DEPTH, _DUO_DEPTH = 100, 5
_RECEIPTS = "mono/receipts/*.json"


def machine(setup: Setup) -> Iterator[Row]:
    """The versions and the card."""
    import torch

    facts = {**asdict(describe_machine()), "cuda_of_torch": torch.version.cuda}
    if setup.device == "cuda":
        facts["card"] = torch.cuda.get_device_properties(0)
        facts["flash_attention"] = torch.backends.cuda.is_flash_attention_available()
    for name, value in facts.items():
        yield {"fact": name, "value": str(value)}


def of_models(
    rows: Callable[[Setup, str], Iterator[Row]],
) -> Callable[[Setup], Iterator[Row]]:
    """A step that does the models one after the other: one that fails is named."""

    @wraps(rows)
    def step(setup: Setup) -> Iterator[Row]:
        for name in MODELS:
            try:
                yield from rows(setup, name)
            except (BeamrankError, RuntimeError, ImportError) as error:
                # After others of CUDA, the process can no longer use the card.
                if "CUDA error" in str(error):
                    raise
                yield {"model": name, "error": f"{type(error).__name__}: {error}"}

    return step


@of_models
def parity(setup: Setup, name: str) -> Iterator[Row]:
    """How far scores are from those in float32 on the CPU, as shares of their spread."""
    exact = load(name, setup, "cpu", "float32")
    packed = inputs(exact, setup.sized(_COMPARED))
    wanted = exact.engine.score(packed).log_odds
    for dtype in setup.dtypes[: 3 if name in _IN_ALL_DTYPES else 1]:
        engine = load(name, setup, setup.device, dtype).engine
        error = np.abs(engine.score(packed).log_odds - wanted) / wanted.std()
        rms, largest = float(np.sqrt(np.square(error).mean())), float(error.max())
        yield {"model": name, "dtype": dtype, "rms": rms, "largest": largest}


@of_models
def batches(setup: Setup, name: str) -> Iterator[Row]:
    """Whether bits depend on the batch: some of the same inputs in random orders and batches."""
    drawn = np.random.default_rng(1)
    model = load(name, setup, setup.device, setup.dtypes[0])
    packed, engine = inputs(model, setup.sized(_COMPARED)), model.engine
    wanted, budget = engine.score(packed).log_odds, engine.token_budget
    again = engine.score(packed).log_odds.tobytes() == wanted.tobytes()
    others, errors = [], []
    for _ in range(setup.sized(_TRIALS.get(name, _FEWER_TRIALS))):
        some = drawn.permutation(len(packed))[: drawn.integers(1, len(packed) + 1)]
        engine.token_budget = int(drawn.integers(256, 1 + packed.lengths.sum()))
        error = np.abs(engine.score(packed.take(some)).log_odds - wanted[some])
        others.append(np.mean(error > 0))
        errors.append(error.max() / wanted.std())
    engine.token_budget = budget
    yield {
        "model": name,
        "same_bits_again": again,
        "trials": len(others),
        "with_other_bits": int(np.count_nonzero(others)),
        "share_of_inputs": float(np.mean(others)),
        "largest": float(max(errors)),
    }


@cache
def _peak(setup: Setup) -> float:
    return engines.peak_flops(engines.Place(setup.device, usable_cores()))


@of_models
def rates(setup: Setup, name: str) -> Iterator[Row]:
    """Inputs a second from stored tokens; the share of a product's rate that the layers' matrices
    alone need.
    """
    for tokens in _LENGTHS:
        for dtype in setup.dtypes[: 3 if (name, tokens) in _RATED_IN_ALL else 1]:
            model = load(name, setup, setup.device, dtype)
            rate = _rate(setup, model, tokens)
            work = 2 * _products(model) * tokens * rate
            figures = {"rate": round(rate, 1), "tflops": round(work / 1e12, 3)}
            share = round(work / _peak(setup), 3)
            row = {"model": name, "dtype": dtype, "tokens": tokens, **figures}
            yield {**row, "share_of_product": share}


def _rate(setup: Setup, model: Reranker, tokens: int) -> float:
    """Inputs of so many tokens a second, the best of two passes."""
    work = (_TINY_WORK if setup.tiny else _WORK) / _products(model) / 2 / tokens
    packed = inputs(model, min(_MOST_INPUTS, max(16, int(work))), tokens)
    model.engine.score(packed.take(np.arange(0, len(packed), 8)))
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        model.engine.score(packed)
        seconds.append(time.perf_counter() - start)
    return len(packed) / min(seconds)


def _products(model: Reranker) -> int:
    """The multiplications of a token: the sizes of all matrices but embeddings."""
    folder = model.engine.checkpoint.folder
    shapes = tensor_shapes(folder, folder).items()
    return sum(
        math.prod(shape) for name, shape in shapes if len(shape) == 2 and "embed" not in name
    )


@of_models
def texts(setup: Setup, name: str) -> Iterator[Row]:
    """Pairs a second from texts, beside sentence-transformers."""
    count, questions, docs = setup.sized(_TEXTS), demo_questions(), stdlib_docs()
    some = [(questions[n % len(questions)].text, docs[2 * n].text) for n in range(count)]
    peer = CrossEncoderSetting(_PEER_BATCH, setup.dtypes[0])
    sides: dict[str, Callable[..., engines.Score]] = {
        "beamrank": partial(engines.beamrank, setup.dtypes[0]),
        "sentence-transformers": partial(engines.cross_encoder, peer),
    }
    model = engines.Model(checkpoint(name, setup), "mono")
    place = engines.Place(setup.device, usable_cores())
    # Both would need its prompt.
    for side in sides if name != QWEN else ():
        measured = engines.measure(sides[side], model, some, place, 2)
        yield {"model": name, "engine": side, "rate": round(count / measured.seconds, 1)}


def memory(setup: Setup) -> Iterator[Row]:
    """The memory of a batch; and batches that do not fit, in other processes."""
    import torch

    if setup.device == "cpu":
        yield {"model": "none: a CPU's memory is the machine's"}
        return
    for name in MODELS:
        model = load(name, setup, "cuda", "bfloat16")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model.engine.score(inputs(model, 4 * model.engine.token_budget // 512, 512))
        peak = torch.cuda.max_memory_allocated() - before
        yield {"model": name, "batch_mib": peak >> 20, "weights_mib": before >> 20}
    for full in (False, True):
        yield {"model": FIRST, "full_card": full, **run_apart(_little_memory, setup, full)}


def _little_memory(setup: Setup, full: bool) -> Row:
    """Scores with 512 MiB: by a limit of torch's, or what a full card leaves to cuBLAS as well."""
    import torch

    model = load(FIRST, setup, "cuda", "bfloat16")
    engine, packed = model.engine, inputs(model, 4096, 512)
    taken, budget, engine.token_budget = None, engine.token_budget, 1 << 21
    free, total = torch.cuda.mem_get_info()
    if full:
        taken = torch.empty(free - _SPARE_BYTES, dtype=torch.uint8, device="cuda")
    else:
        torch.cuda.set_per_process_memory_fraction(_SPARE_BYTES / total)
    scores = [engine.score(packed) for _ in range(2)]
    del taken
    torch.cuda.set_per_process_memory_fraction(1.0)
    engine.token_budget = budget
    wanted = engine.score(packed).log_odds
    errors = [np.abs(each.log_odds - wanted).max() / wanted.std() for each in scores]
    return {"halvings": [each.halvings for each in scores], "largest": float(max(errors))}


def cascade(setup: Setup) -> Iterator[Row]:
    """A cascade in memory, and the same by `run --only` with a given run, which is killed once and
    resumed.
    """
    folder, depth = setup.work / "run", setup.sized(_DEPTH) + _DUO_DEPTH
    topics = {question.query_id: question.text for question in demo_questions()}
    docs = {doc.doc_id: doc.text for doc in stdlib_docs()}
    drawn, scores = np.random.default_rng(2), np.arange(depth, 0, -1.0).tolist()
    ids = np.array(sorted(docs))
    run = {
        topic: dict(zip(drawn.permutation(ids)[:depth].tolist(), scores, strict=True))
        for topic in topics
    }
    models: Any = {"mono": checkpoint(FIRST, setup), "duo": checkpoint(DUO, setup)}
    place: Any = {"device": setup.device, "dtype": setup.dtypes[0]}
    start = time.perf_counter()
    wanted = rerank(topics, run, docs, k0=depth, k1=_DUO_DEPTH, **models, **place)
    yield {"way": "rerank", "seconds": round(time.perf_counter() - start, 2)}
    command, output = _write_run(folder, run, models, place), folder / "out"
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while first.poll() is None and not any(output.glob(_RECEIPTS)):
        time.sleep(0.002)
    first.kill()
    killed, before = first.wait() < 0, len([*output.glob(_RECEIPTS)])
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    row = {"way": "run --only", "seconds": round(time.perf_counter() - start, 2), "killed": killed}
    found = {name: read_run(output / "runs" / f"{name}.trec") for name in wanted}
    yield {**row, "shards_before": before, "as_in_memory": found == wanted}


def _write_run(
    folder: Path,
    run: Mapping[str, Mapping[str, float]],
    models: Mapping[str, str],
    place: Mapping[str, str],
) -> list[str]:
    """Writes the demo's collection with a run and a configuration; returns the command."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_collection(str(folder))
    write_run(run, folder / "given.trec")
    depth = len(next(iter(run.values())))
    config = {
        "run_tag": "gpu",
        "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "candidates": {"run": "given.trec", "k": depth},
        "mono": {"checkpoint": models["mono"], "k": depth},
        "duo": {"checkpoint": models["duo"], "k": _DUO_DEPTH},
        "output": "out",
        **place,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return [sys.executable, "-m", "beamrank", "run", str(path), "--only", "0/1"]


def processes(setup: Setup) -> Iterator[Row]:
    """The rates of one process, and of two on one card; whether their bits are the same."""
    bits = set()
    for count in (1, 2):
        with ProcessPoolExecutor(count, get_context("spawn"), initializer=be_quiet) as pool:
            done = [*pool.map(_rate_apart, [setup] * count)]
        bits |= {own for _, own in done}
        yield {"rates": [round(rate, 1) for rate, _ in done], "same_bits": len(bits) == 1}


def _rate_apart(setup: Setup) -> tuple[float, bytes]:
    model = load(FIRST, setup, setup.device, setup.dtypes[0])
    scores = model.engine.score(inputs(model, setup.sized(_COMPARED)))
    return _rate(setup, model, _LENGTHS[0]), scores.log_odds.tobytes()


class Step(NamedTuple):
    """A step, and its share of the time, of 100."""

    rows: Callable[[Setup], Iterator[Row]]
    share: int


STEPS = {
    "machine": Step(machine, 5),
    "parity": Step(parity, 30),
    "batches": Step(batches, 9),
    "rates": Step(rates, 18),
    "texts": Step(texts, 15),
    "memory": Step(memory, 6),
    "cascade": Step(cascade, 10),
    "processes": Step(processes, 7),
}

r"""Compares engines that score the same texts on one device, from texts to log-odds, for
checkpoints of many shapes.

    python -m benchmarks.engine
    python -m benchmarks.engine --shapes BERT-base --engines "beamrank bfloat16" "OpenVINO bfloat16"
    python -m benchmarks.engine --device cuda

Each engine runs in a process of its own, all of them in turn, and its best pass counts. The figures
of a call replace those in the results file and keep the others, so that a comparison can be made in
pieces; the tables show all of the file. An engine that is not installed or fails is named and left
out. The texts are questions and paragraphs of SQuAD. The weights are random, since speed does not
depend on them, and rankings of such a model are close to ties; only the embedded mono is a trained
one.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from beamrank.machine import describe_machine, usable_cores
from beamrank.ranking.input_layout import TEXT_COUNTS
from benchmarks.commands import parser_of
from benchmarks.datasets.squad import ARCHIVE
from benchmarks.engine.engines import (
    ENGINES,
    REFERENCE,
    Measured,
    Model,
    Place,
    measure,
    peak_flops,
)
from benchmarks.engine.shapes import SHAPES, count_products
from benchmarks.engine.table import Row, add_row, figures, read_rows, tables
from benchmarks.engine.texts import Texts, real_inputs
from benchmarks.machine import processor_kind
from benchmarks.subprocess_meter import run_apart
from models.scoring.backends.torch import resolve_device

_GPU_SHAPES, _GPU_INPUTS = ("MiniLM-L6", "BERT-large"), 10_000
_OPTIONS = {
    "--device": ("cpu", "cpu or cuda"),
    "--shapes": ([str], f"of {', '.join(SHAPES)} (all; on a GPU two)"),
    "--engines": ([str], f"of {', '.join(ENGINES)} (all that run there)"),
    "--inputs": (int, "(so many that bfloat16 takes some seconds)"),
    "--threads": (usable_cores(), "of a CPU"),
    "--rounds": (1, "processes of each engine, all engines in turn"),
    "--passes": (2, "of each process over its inputs; the best counts"),
    "--results": (Path("benchmarks/results/engine.json"), "JSON"),
    "--squad": (ARCHIVE, "SQuAD 1.1 as HTML pages in a tar.gz"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, adds the figures to the results file, and prints the tables."""
    options = parser_of("benchmarks.engine", __doc__, _OPTIONS).parse_args(arguments)
    place = Place(options.device, options.threads)
    machine = {"machine": _machine(place), "processor": processor_kind()}
    peak = run_apart(peak_flops, place)
    print(
        f"{machine['machine']}, {peak / 1e9:.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}",
        file=sys.stderr,
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="beamrank-bench-") as work:
        for shape in options.shapes or (SHAPES if place.device == "cpu" else _GPU_SHAPES):
            for row in _compare(shape, Path(work, shape), options, place, peak):
                add_row(options.results, {**machine, **row})
    print(tables(read_rows(options.results)))


def _compare(
    name: str, folder: Path, options: argparse.Namespace, place: Place, peak: float
) -> Iterator[Row]:
    """The rows of one shape, all again after each round."""
    shape = SHAPES[name]
    count = options.inputs or (shape.inputs if place.device == "cpu" else _GPU_INPUTS)
    inputs = real_inputs(options.squad, count, TEXT_COUNTS[shape.kind])
    model = Model(shape.save(folder), shape.kind)
    flops = 2.0 * count_products(model.folder, model.kind)
    best: dict[str, Measured] = {}
    for _ in range(options.rounds):
        for engine in dict.fromkeys([REFERENCE, *(options.engines or ENGINES)]):
            measured = _attempt(engine, model, inputs.texts, place, options.passes)
            if measured is not None:
                best[engine] = min(
                    measured, best.get(engine, measured), key=lambda one: one.seconds
                )
                reference = best[REFERENCE]
                share = flops * reference.scored.tokens / peak
                yield {
                    "shape": name,
                    "engine": engine,
                    **figures(best[engine], reference, inputs, share),
                }


def _attempt(
    name: str, model: Model, texts: Sequence[Texts], place: Place, passes: int
) -> Measured | None:
    """What an engine takes; None where it cannot run."""
    engine = ENGINES[name]
    if place.device not in engine.devices or model.kind not in engine.kinds:
        return None
    reason = f"not installed: {', '.join(engine.missing)}"
    if not engine.missing:
        try:
            return run_apart(measure, engine.load, model, texts, place, passes)
        # An engine of others can fail in any way, and the comparison continues without it.
        except Exception as error:
            if name.startswith("beamrank"):
                raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
    print(f"left out: {name} ({reason})", file=sys.stderr, flush=True)
    return None


def _machine(place: Place) -> str:
    """The device, for the head of the tables."""
    if place.device == "cpu":
        return f"{describe_machine().processor}, {place.threads} threads"
    import torch

    resolve_device(place.device)
    return torch.cuda.get_device_name()


if __name__ == "__main__":
    main()

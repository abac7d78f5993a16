r"""Compares engines that score the same texts on one device, from texts to log-odds, for
checkpoints of many shapes.

    python -m benchmarks.engine
    python -m benchmarks.engine --shapes BERT-base --tokens real 128 \
        --engines "beamrank bfloat16" "OpenVINO int8"
    python -m benchmarks.engine --device cuda

Each engine runs in a process of its own, all of them in turn, and its best pass counts. The figures
of a call replace those in the results file and keep the others, so that a comparison can be made in
pieces; the tables show all of the file. An engine that is not installed or fails is named and left
out. The texts are questions and paragraphs of SQuAD, whole (`real`), or random words that make an
input of so many tokens. The weights are random, since speed does not depend on them, and rankings
of such a model are close to ties; only the embedded mono is a trained one.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from beamrank.machine import describe_machine, usable_cores
from beamrank.ranking.input_layout import SEGMENTS
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
from benchmarks.engine.table import Row, Setting, add_rows, read_rows, tables
from benchmarks.engine.texts import Inputs, Texts, even_inputs, real_inputs
from benchmarks.subprocess_meter import run_apart
from models.scoring.backends.registry import processor_kind
from models.scoring.backends.torch import resolve_device

_LENGTHS = ("32", "128", "256", "512")
# These shapes also have the engines that take long to load, and some engines at other lengths than
# the real ones.
_COMPLETE = ("MiniLM-L6", "BERT-base")
_AT_ALL_LENGTHS = (
    REFERENCE,
    "beamrank bfloat16",
    "beamrank openvino bfloat16",
    "OpenVINO bfloat16",
)
# The real inputs of these shapes have about so many tokens.
_MEAN_TOKENS = 190
_ON_GPU = {"shapes": ["MiniLM-L6", "BERT-large"], "tokens": ["real"], "inputs": 10_000}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, adds the figures to the results file, and prints the tables."""
    options = _parser().parse_args(arguments)
    if not options.print:
        place = Place(options.device, options.threads)
        machine = _machine(place)
        peak = run_apart(peak_flops, place)
        print(
            f"{machine}, {peak / 1e9:.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}",
            file=sys.stderr,
            flush=True,
        )
        with tempfile.TemporaryDirectory(prefix="beamrank-bench-") as work:
            for shape in options.shapes or _default("shapes", place, list(SHAPES)):
                for row in _compare(shape, Path(work, shape), options, place, machine, peak):
                    add_rows(options.results, [row])
    print(tables(read_rows(options.results)))


def _compare(
    shape_name: str,
    folder: Path,
    options: argparse.Namespace,
    place: Place,
    machine: str,
    peak: float,
) -> Iterator[Row]:
    """The rows of one shape."""
    shape = SHAPES[shape_name]
    segments = SEGMENTS[shape.kind]
    count = options.inputs or _default("inputs", place, shape.inputs)
    inputs: dict[str, Inputs] = {}
    for tokens in options.tokens or _default(
        "tokens", place, ["real", *(_LENGTHS if shape_name in _COMPLETE else ())]
    ):
        if tokens == "real":
            inputs[tokens] = real_inputs(options.squad, count, segments)
        else:
            some = count if options.inputs else max(4, count * _MEAN_TOKENS // int(tokens))
            inputs[tokens] = even_inputs(some, int(tokens), segments)
    model = Model(shape.save(folder), shape.kind, real_inputs(options.squad, 64, segments).texts)
    cost = count_products(model.folder, model.kind)
    best: dict[tuple[str, str], Measured] = {}
    for _ in range(options.rounds):
        for name in _engines(shape_name, options, place):
            chosen = [
                each
                for each in inputs
                if options.tokens or each == "real" or name in _AT_ALL_LENGTHS
            ]
            found = _attempt(
                name, model, [inputs[each].texts for each in chosen], place, options.passes
            )
            for tokens, measured in zip(chosen, found, strict=False):
                before = best.get((tokens, name), measured)
                best[tokens, name] = min(measured, before, key=lambda each: each.seconds)
                reference = best[tokens, REFERENCE]
                flops = 2.0 * cost * reference.scored.tokens
                setting = Setting(
                    machine,
                    processor_kind(),
                    shape_name,
                    tokens,
                    inputs[tokens],
                    reference,
                    flops,
                    peak,
                )
                yield setting.row(name, best[tokens, name])


def _engines(shape_name: str, options: argparse.Namespace, place: Place) -> list[str]:
    """The engines that are measured; the first is the reference."""
    names = options.engines or [
        name
        for name, engine in ENGINES.items()
        if shape_name in _COMPLETE or not engine.slow_to_load
    ]
    kind = SHAPES[shape_name].kind
    known = [
        name
        for name in names
        if place.device in ENGINES[name].devices and kind in ENGINES[name].kinds
    ]
    return list(dict.fromkeys([REFERENCE, *known]))


def _attempt(
    name: str, model: Model, texts: Sequence[Sequence[Texts]], place: Place, passes: int
) -> list[Measured]:
    """What an engine takes for each list of texts; nothing where it cannot run."""
    reason = f"not installed: {', '.join(missing)}" if (missing := ENGINES[name].missing) else ""
    if not reason:
        try:
            return run_apart(measure, name, model, texts, place, passes)
        # An engine of others can fail in any way, and the comparison continues without it.
        except Exception as error:
            if name.startswith("beamrank"):
                raise
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(f"left out: {name} ({reason})", file=sys.stderr, flush=True)
    return []


def _default(name: str, place: Place, on_cpu: Any) -> Any:
    return on_cpu if place.device == "cpu" else _ON_GPU[name]


def _machine(place: Place) -> str:
    """The device, for the head of the tables."""
    if place.device == "cpu":
        return f"{describe_machine().processor}, {place.threads} threads"
    import torch

    resolve_device(place.device)
    return torch.cuda.get_device_name()


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("benchmarks.engine", __doc__)
    add = parser.add_argument
    few = " and ".join(_COMPLETE)
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    add("--shapes", nargs="+", choices=SHAPES, help="(all; on a GPU two)")
    add(
        "--engines",
        nargs="+",
        choices=ENGINES,
        metavar="ENGINE",
        help=f"of {', '.join(ENGINES)} (all that run there; those that load slowly for {few} "
        "alone)",
    )
    add("--tokens", nargs="+", help=f"of an input (real; for {few} also {', '.join(_LENGTHS)})")
    add("--inputs", type=int, help="(so many that bfloat16 takes some seconds)")
    add("--threads", type=int, default=usable_cores(), help="(%(default)s)")
    add(
        "--rounds",
        type=int,
        default=1,
        help="processes of each engine, all engines in turn (%(default)s)",
    )
    add(
        "--passes",
        type=int,
        default=2,
        help="of each process over its inputs; the best counts (%(default)s)",
    )
    add(
        "--results", type=Path, default=Path("benchmarks/results/engine.json"), help="(%(default)s)"
    )
    add(
        "--print", action="store_true", help="measure nothing, print the tables of the results file"
    )
    add("--squad", type=Path, default=ARCHIVE, help="SQuAD 1.1 as HTML pages in a tar.gz")
    return parser


if __name__ == "__main__":
    main()

"""Whether the engine is as fast, beside OpenVINO and sentence-transformers, as it was on this kind
of processor.

Run it before a change of `models/` is merged. It takes three minutes on a processor with AMX, and
12 on one with bfloat16 but without AMX. A kind is a maker and instructions. It fails where a ratio
is below nine tenths of the one stored for this kind, and not where none is stored. `--store` keeps
the ratios that it finds.
"""

import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from pydantic import TypeAdapter

from beamrank.machine import usable_cores
from benchmarks.commands import parser_of
from benchmarks.engine.engines import ENGINES, Model, Place, load_engine, time_pass
from benchmarks.engine.shapes import SHAPES
from benchmarks.engine.texts import even_inputs
from benchmarks.machine import processor_kind
from benchmarks.subprocess_meter import be_quiet

RATIOS = Path(__file__).parents[1] / "results" / "engine-ratios.json"
_OURS, *_PEERS = "beamrank bfloat16", "OpenVINO bfloat16", "sentence-transformers bfloat16"
# So many inputs of each length.
_LENGTHS, _INPUTS = range(32, 224, 7), {"MiniLM-L6": 24, "BERT-base": 5}
_ROUNDS, _KEPT = 5, 0.9
_TABLE = TypeAdapter(dict[str, dict[str, float]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints the ratio of each shape, and returns 1 where one is too low for this kind
    of processor.
    """
    flags = {"--store": (False, f"keep the ratios in {RATIOS.name}")}
    options = parser_of("benchmarks.engine.guard", __doc__, flags).parse_args(arguments)
    stored, kind = _TABLE.validate_json(RATIOS.read_bytes()), processor_kind()
    ratios = {shape: round(measure_ratio(shape), 3) for shape in _INPUTS}
    earlier = stored.get(kind, {})
    print(f"{kind}: {ratios} times the faster of {' and '.join(_PEERS)}")
    print(
        f"stored for this kind, of which {_KEPT} must be left: "
        f"{earlier or 'nothing, so nothing fails; --store keeps these'}"
    )
    if options.store:
        RATIOS.write_bytes(_TABLE.dump_json({**stored, kind: ratios}, indent=1) + b"\n")
        return 0
    return int(any(ratios[shape] < _KEPT * ratio for shape, ratio in earlier.items()))


def measure_ratio(shape: str) -> float:
    """The rate of beamrank over the faster peer's: the best of five passes each, in turn."""
    texts = [pair for tokens in _LENGTHS for pair in even_inputs(_INPUTS[shape], tokens, 2).texts]
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="beamrank-bench-") as folder, ExitStack() as stack:
        model = Model(SHAPES[shape].save(Path(folder, shape)), "mono")
        # Each engine has a process of its own, which stays loaded.
        pools = {
            name: stack.enter_context(
                ProcessPoolExecutor(
                    1, spawn, load_engine, (ENGINES[name].load, model, Place("cpu", usable_cores()))
                )
            )
            for name in (_OURS, *_PEERS)
        }
        best = dict.fromkeys(pools, float("inf"))
        for _ in range(_ROUNDS + 1):
            for name, pool in pools.items():
                best[name] = min(best[name], pool.submit(time_pass, texts).result().seconds)
    return min(best[name] for name in _PEERS) / best[_OURS]


if __name__ == "__main__":
    be_quiet()
    sys.exit(main())

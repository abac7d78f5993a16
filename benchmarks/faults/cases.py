"""A case of the campaign: a pure function of a seed and a number."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

WORLDS = 8
"""So many collections with their cascades has a seed: what an undisturbed run of each leaves is
made once.
"""
RUNNERS: Mapping[str, float] = {
    "only": 60,
    "local": 33,
    "workers": 3,
    "prism": 3,
    "pool": 2.5,
    "flink": 2,
    "spark": 2,
}
"""The weights of runners. `only`: the shards in the launcher, without an engine; `workers`: two
worker processes; `pool`: Prism with workers of a pool."""
INPUTS = {
    "corpus": "corpus.jsonl",
    "list of topics": "topics.tsv",
    "given run": "given.trec",
    "checkpoint": "mono/model.safetensors",
    "list of judgments": "qrels.txt",
}
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGSTOP")
LAUNCHER, WORKER, SERVER, JVM = "the launcher", "a worker", "the job server", "a JVM"
JAVA_ENGINES = "flink spark"
DAMAGES = ("flipped bit", "cut file", "emptied file", "swapped files", "deleted file")
WEATHERS = ("is slow", "fails", "throttles", "loses answers", "lists what was")
BETWEEN, DURING = "between launches", "during a launch"
FINISHED, REUSED, OF_INDEX = "of a finished output", "of a reused output", "of the index"
FULL_DISK = "a full disk"
_STORES = {"disk": 92, "s3": 4, "gs": 4}
_STORES_OF_ENGINES = {"disk": 60, "s3": 20, "gs": 20}
_FIRST = {"run": 70, "table": 18, "bm25": 12}


def _equally(weight: float, *kinds: str) -> dict[str, float]:
    return dict.fromkeys(kinds, weight)


_ALWAYS = (
    _equally(6, *(f"{name} of {LAUNCHER}" for name in SIGNALS))
    | _equally(2, *(f"the {name} changes{when}" for name in INPUTS for when in ("", f" {BETWEEN}")))
    | _equally(
        3, *(f"{damage} {when}" for damage in DAMAGES for when in (BETWEEN, DURING, FINISHED))
    )
    | _equally(
        3,
        "a launcher stops while another one runs",
        "two launchers",
        "another configuration at once",
    )
    | _equally(2, "three launchers", "a memory limit", "a limit of open files")
    | _equally(4, "a file-size limit", "a clock that jumps", "a read-only folder", FULL_DISK)
    | _equally(8, "a system call that fails")
)
# Of each process below a launcher: its weight, and the runners that have one.
_BELOW = {
    WORKER: (40, "workers pool"),
    SERVER: (30, "prism pool flink spark"),
    JVM: (10, JAVA_ENGINES),
}
_OF_STORES = _equally(14, *(f"a store that {weather}" for weather in WEATHERS))
_OF_REUSED = _equally(6, *(f"{damage} {REUSED}" for damage in DAMAGES))
_OF_INDEX = _equally(
    5, *(f"{damage} {OF_INDEX} {when}" for damage in DAMAGES for when in (BETWEEN, DURING))
)


class World(NamedTuple):
    """A collection, by its first stage (`run`, `table` or `bm25`), topics, and the other keys of
    its configuration.
    """

    first: str
    topics: Collection[int]
    keys: Mapping[str, Any]


class Setup(NamedTuple):
    """How a run of a world is executed, which decides no byte of its runs.

    `processes` are as many of `--only I/N`, at once; `reuse` is the number of shards of an earlier
    run, or 0.
    """

    world: int
    runner: str
    store: str
    shards: int
    processes: int
    retries: int
    reuse: int


class Fault(NamedTuple):
    """A fault: when it strikes, as a share of a run's work, and the seed of all else that is random
    about it.
    """

    kind: str
    moment: float
    seed: int

    @property
    def drawn(self) -> random.Random:
        """What draws its details."""
        return random.Random(self.seed)


@dataclass(frozen=True)
class Case:
    """A run, and the faults of its launches, one after the other."""

    seed: int
    number: int
    setup: Setup
    faults: tuple[Fault, ...]

    def keep(self, kept: Collection[int]) -> "Case":
        """The same with these of its faults."""
        return replace(
            self, faults=tuple(fault for at, fault in enumerate(self.faults) if at in kept)
        )


def draw_case(seed: int, number: int, runners: Collection[str] = tuple(RUNNERS)) -> Case:
    """The case with this number, among those with some runners."""
    drawn = random.Random(f"case {seed} {number}")
    runner = _weighted(drawn, {name: weight for name, weight in RUNNERS.items() if name in runners})
    store = _weighted(drawn, _STORES if runner in ("only", "local") else _STORES_OF_ENGINES)
    processes = drawn.choice((1, 1, 2)) if runner == "only" else 1
    reuse = drawn.randrange(1, 5) if drawn.random() < 0.2 else 0
    setup = Setup(
        drawn.randrange(WORLDS),
        runner,
        store,
        drawn.randrange(1, 5),
        processes,
        drawn.randrange(3),
        reuse,
    )
    kinds = _kinds(setup, draw_world(seed, setup.world).first)
    count = drawn.choice((1, 2, 3, 4))
    faults = (
        Fault(_weighted(drawn, kinds), drawn.random(), drawn.getrandbits(32)) for _ in range(count)
    )
    return Case(seed, number, setup, tuple(faults))


def _kinds(setup: Setup, first: str) -> dict[str, float]:
    """The faults that can strike a run, with their weights."""
    kinds = dict(_ALWAYS)
    if first == "bm25":
        # A JVM reserves more memory than any limit that the rest can meet.
        del (
            kinds["the given run changes"],
            kinds[f"the given run changes {BETWEEN}"],
            kinds["a memory limit"],
        )
        kinds |= _OF_INDEX
    for role, (weight, runners) in _BELOW.items():
        if setup.runner in runners.split() or (role == JVM and first == "bm25"):
            kinds |= _equally(
                weight, *(f"{name} of {role}" for name in SIGNALS if name != "SIGINT")
            )
    if setup.store != "disk":
        kinds |= _OF_STORES
        del kinds["a read-only folder"], kinds[FULL_DISK]
    return kinds | _OF_REUSED if setup.reuse else kinds


def draw_world(seed: int, number: int) -> World:
    """The collection with this number."""
    drawn = random.Random(f"world {seed} {number}")
    keys: dict[str, Any] = {"cascade": _draw_cascade(drawn)}
    if drawn.random() < 0.3:
        keys["run_formats"] = drawn.choice((["trec", "parquet"], ["msmarco"], ["parquet"]))
    if drawn.random() < 0.2:
        keys["run_files"] = "parts"
    return World(
        _weighted(drawn, _FIRST), sorted(drawn.sample(range(10), drawn.randrange(3, 9))), keys
    )


def _draw_cascade(drawn: random.Random) -> list[dict[str, Any]]:
    """One to four stages with a model."""
    kinds = drawn.choice(
        (["mono"], ["mono", "duo"], ["mono", "mono", "duo"], ["mono", "mono", "duo", "duo"])
    )
    stages, k = list[dict[str, Any]](), 8
    for at, kind in enumerate(kinds):
        k = drawn.randrange(max(2, k // 2), k + 1)
        settings: dict[str, Any] = {"checkpoint": f"./{kind}", "k": k, "name": f"{kind}{at}"}
        if kind == "mono" and drawn.random() < 0.4:
            settings["segments"] = {
                "length_tokens": 30,
                "stride_tokens": 20,
                "limit": drawn.randrange(1, 4),
            }
        if kind == "duo":
            settings["aggregation"] = drawn.choice(
                ("sum", "min", "sym_log_sum", "binary", "sample")
            )
        if settings.get("aggregation") == "sample":
            settings |= {"opponents": drawn.randrange(1, 4), "seed": drawn.randrange(9)}
        stages.append({kind: settings})
    return stages


def _weighted(drawn: random.Random, weights: Mapping[str, float]) -> str:
    return drawn.choices(list(weights), list(weights.values()))[0]

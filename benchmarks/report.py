"""The results on SQuAD as a page: benchmarks/results/performance.md is written by this module and
by nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

_INTRODUCTION = """# Performance

`make bench` writes this page from `squad.json`: do not edit it. Every figure was
measured on the machine below, beside its peer and in the same run, and is shown as measured, \
including missed targets.
To measure on your machine: `python -m benchmarks --squad ARCHIVE`.
"""

Cells = Sequence[object]
Figures = dict[str, Any]


class Table(NamedTuple):
    """A table with the text above it.

    Attributes:
        text: a format string over the figures.
        header: the column names, where the figures do not decide them.
        rows: the rows; the first is the header if `header` is None.
    """

    text: str
    header: Cells | None
    rows: Callable[[Figures], Iterable[Cells]]


def render(results: Figures) -> str:
    """Markdown of a results file, without the parts that were not measured."""
    parts = results["parts"]
    sections = [
        _INTRODUCTION,
        _lines([("", ""), *_setting(results)]),
        f"## Targets\n\n{_lines(_targets(parts))}",
    ]
    for name, part in parts.items():
        title, *tables = _SECTIONS[name]
        sections.append(
            f"## {title}\n\n" + "\n".join(_table(table, part["figures"]) for table in tables)
        )
    return "\n".join([*sections, f"## When\n\n{_lines(_dates(parts))}"])


def _table(table: Table, figures: Figures) -> str:
    rows = list(table.rows(figures))
    return (
        f"{table.text.format(**figures)}\n\n"
        f"{_lines(rows if table.header is None else [table.header, *rows])}"
    )


def _lines(rows: Iterable[Cells]) -> str:
    header, *others = rows
    return "".join(
        f"| {' | '.join(map(_cell, row))} |\n" for row in (header, ["---"] * len(header), *others)
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def _setting(results: Figures) -> Iterable[Cells]:
    machine, settings = results["machine"], results["settings"]
    depths = settings["depths"]
    collection = f"{settings['passages']:,} passages, {settings['questions']:,} dev questions"
    yield (
        "processor",
        f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['cpu_extensions'])})",
    )
    yield "memory", f"{machine['memory_gib']} GiB"
    yield "GPU", machine["gpu"] or "none"
    yield "system", f"{machine['system']}, Python {machine['python']}, Java {machine['java']}"
    yield (
        "libraries",
        ", ".join(f"{name} {version}" for name, version in machine["libraries"].items()),
    )
    yield "collection", f"{results['benchmark']}: {collection}"
    yield "depths", f"bm25.k {depths['bm25']}, mono.k {depths['mono']}, duo.k {depths['duo']}"
    yield from ((f"{kind} checkpoint", name) for kind, name in settings["checkpoints"].items())


def _targets(parts: Figures) -> Iterable[Cells]:
    yield "figure", "wanted", "measured", ""
    for target in (target for part in parts.values() for target in part["targets"]):
        verdict = "met" if target["met"] else "**missed**"
        yield (
            target["name"],
            f"{target['wanted']} {target['limit']:,g}",
            target["measured"],
            verdict,
        )


def _dates(parts: Figures) -> Iterable[Cells]:
    yield "part", "date", "seconds", "load average before the command", "command"
    for name, part in parts.items():
        yield (
            name,
            part["date"],
            part["seconds"],
            part["load_average_before"],
            f"`{part['command']}`",
        )


def _stages(figures: Figures) -> Iterable[Cells]:
    for row in figures["stages"]:
        rate = f"{row['per_second']:,} {row['unit']}/s"
        yield row["stage"], row["seconds"], row["receipts_seconds"], row["work"], rate


def _measures(figures: Figures) -> Iterable[Cells]:
    measures = figures["measures"]
    yield ["run", *next(iter(measures.values()))]
    for run, values in measures.items():
        yield [run, *values.values()]


def _passes(figures: Figures) -> Iterable[Cells]:
    for name, side in (
        ("beamrank, shard by shard, committed", "beamrank"),
        ("pyserini `batch_search`, hits read as (docid, score)", "pyserini"),
    ):
        yield [name, *(figures[side][f"{each}_seconds"] for each in ("open", "first", "second"))]
    yield "ratio", None, figures["ratio_first_pass"], figures["ratio_second_pass"]


def _sides(figures: Figures) -> Iterable[Cells]:
    settings = {
        "beamrank, auto": figures["auto_dtype"],
        "beamrank, float32": "float32",
        "CrossEncoder, defaults": "batch_size 32, float32, sdpa",
        "CrossEncoder, best": figures["best_setting"],
        "CrossEncoder, best in float32": figures["best_setting_float32"],
    }
    return ((name, settings[name], rate) for name, rate in figures["pairs_per_second"].items())


def _peaks(figures: Figures) -> Iterable[Cells]:
    peaks = figures["peak_mib_by_topics"]
    yield ["stage", *(f"{int(topics):,} topics" for topics in peaks), "growth"]
    for stage, ratio in figures["growth"].items():
        yield [stage, *(each[stage] for each in peaks.values()), ratio]


_SECTIONS: dict[str, tuple[Any, ...]] = {
    "run": (
        "The whole run",
        Table(
            "One `beamrank run` into an empty folder took {command_seconds:,} s for {topics:,} "
            "topics in {shards} shards, and {command_peak_mib:,} MiB of memory at its peak. A "
            "stage's seconds are wall clock time, from the end of the stage before; receipts hold "
            "the time of its shards.",
            ("stage", "seconds", "of these in receipts", "work", "rate"),
            _stages,
        ),
        Table(
            "The sum of its parts is the same work as bare calls of the library, without Beam and "
            "each in a process of its own: {sum_of_parts_seconds:,} s, so the run took {ratio} "
            "times that. Scoring is not repeated: its part is the time to load the model plus the "
            "seconds in the receipts. The first shards are scored again, bare: their receipts "
            "hold {receipts_over_bare[mono]} (mono) and {receipts_over_bare[duo]} (duo) times the "
            "bare time.",
            ("part", "seconds"),
            lambda figures: figures["parts_seconds"].items(),
        ),
        Table("The effectiveness of the runs:", None, _measures),
    ),
    "tokenize": (
        "Tokenizing",
        Table(
            "{passages:,} passages of {words_per_passage} words. A new process is cold: it has "
            "not seen any word yet.",
            ("way", "passages/s"),
            lambda figures: figures["passages_per_second"].items(),
        ),
    ),
    "retrieve": (
        "Retrieval",
        Table(
            "{topics:,} topics, {hits:,} hits, {threads} threads, the same hits on both sides. A "
            "run makes one pass; in the first, Java is cold.",
            ("", "open, s", "first pass, s", "second pass, s"),
            _passes,
        ),
    ),
    "mono": (
        "Scoring",
        Table(
            "{pairs:,} pairs of {tokens_per_pair} tokens, from texts to log-odds, on {device} "
            "with {threads} threads; log-odds in float32 differ by at most "
            "{largest_difference_float32:.1g} from those of sentence-transformers' CrossEncoder. "
            "beamrank has {ratio_defaults} times its rate with its defaults and {ratio_best} "
            "times its best.",
            ("side", "setting", "pairs/s"),
            _sides,
        ),
        Table(
            "How CrossEncoder's best was found, each setting tried once on a part of the pairs:",
            ("setting", "pairs/s"),
            lambda figures: figures["settings_tried"].items(),
        ),
    ),
    "memory": (
        "Memory",
        Table(
            "Peak resident memory of all processes of a stage's command, in MiB, with bm25.k "
            "{depths[bm25]}, mono.k {depths[mono]}, duo.k {depths[duo]} and a Java heap of "
            "{java_heap}. The local runner keeps the join's shuffle in memory, which may grow.",
            None,
            _peaks,
        ),
    ),
}

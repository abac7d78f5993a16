"""The results file as a page: docs/internals/performance.md is written by this module and by nothing else."""

from collections.abc import Iterable, Sequence
from typing import Any

_INTRODUCTION = """# Performance

`make bench` writes this page from [benchmarks/results](../../benchmarks/results): do not edit it. Every figure was
measured on the machine below, beside its peer and in the same run, and is shown as measured, including missed targets.
To measure on your machine: `python -m benchmarks.cascade --squad ARCHIVE`.
"""

Cells = Sequence[object]


def render(results: dict[str, Any]) -> str:
    """Markdown of a results file; parts that were not measured are left out."""
    sections = [_INTRODUCTION, _setting(results), _targets(results["parts"])]
    sections += [_SECTIONS[name](part["figures"]) for name, part in results["parts"].items()]
    sections.append(_dates(results["parts"]))
    return "\n".join(sections)


def _table(header: Cells, rows: Iterable[Cells]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(value) for value in line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else _large(value)


def _large(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def _setting(results: dict[str, Any]) -> str:
    machine, settings = results["machine"], results["settings"]
    depths = settings["depths"]
    rows = [
        ("processor", f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['cpu_extensions'])})"),
        ("memory", f"{machine['memory_gib']} GiB"),
        ("GPU", machine["gpu"] or "none"),
        ("system", f"{machine['system']}, Python {machine['python']}, Java {machine['java']}"),
        ("libraries", ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())),
        (
            "collection",
            f"{results['benchmark']}: {settings['passages']:,} passages, {settings['questions']:,} dev questions",
        ),
        ("depths", f"bm25.k {depths['bm25']}, mono.k {depths['mono']}, duo.k {depths['duo']}"),
        *((f"{kind} checkpoint", name) for kind, name in settings["checkpoints"].items()),
    ]
    return _table(("", ""), rows)


def _targets(parts: dict[str, Any]) -> str:
    rows = [
        (target["name"], f"{target['wanted']} {target['limit']:,g}", target["measured"], _verdict(target))
        for part in parts.values()
        for target in part["targets"]
    ]
    return "## Targets\n\n" + _table(("figure", "wanted", "measured", ""), rows)


def _verdict(target: dict[str, Any]) -> str:
    return "met" if target["met"] else "**missed**"


def _run(figures: dict[str, Any]) -> str:
    stages = [
        (row["stage"], row["seconds"], row["receipts_seconds"], row["work"], f"{row['per_second']:,} {row['unit']}/s")
        for row in figures["stages"]
    ]
    measures = figures["measures"]
    names = list(next(iter(measures.values())))
    peak = figures["command_peak_mib"]
    return "\n".join(
        [
            f"## The whole run\n\nOne `beamrank run` into an empty folder took {figures['command_seconds']:,} s for "
            f"{figures['topics']:,} topics in {figures['shards']} shards, and {peak:,} MiB of memory at its peak. A "
            "stage's seconds are wall clock, from the end of the stage before; receipts say what its shards took.\n",
            _table(("stage", "seconds", "of these in receipts", "work", "rate"), stages),
            "The sum of its parts is the same work as bare calls of the library, without Beam and each in a process of "
            f"its own: {figures['sum_of_parts_seconds']:,} s, so that the run took {figures['ratio']} times that. "
            "Scoring is not done twice: its part is the model's load and the receipts' seconds, and where the "
            f"first shards are scored again bare, their receipts say {figures['receipts_over_bare']['mono']} (mono) "
            f"and {figures['receipts_over_bare']['duo']} (duo) times what that takes.\n",
            _table(("part", "seconds"), figures["parts_seconds"].items()),
            "What the run found:\n",
            _table(("run", *names), [(run, *(values[name] for name in names)) for run, values in measures.items()]),
        ]
    )


def _tokenize(figures: dict[str, Any]) -> str:
    return (
        f"## Tokenizing\n\n{figures['passages']:,} passages of {figures['words_per_passage']} words. A process that "
        "starts is cold: its cache of words is empty.\n\n"
    ) + _table(("way", "passages/s"), figures["passages_per_second"].items())


def _retrieve(figures: dict[str, Any]) -> str:
    rows = [
        (name, each["open_seconds"], each["first_seconds"], each["second_seconds"])
        for name, each in (
            ("beamrank, shard by shard, committed", figures["beamrank"]),
            ("pyserini `batch_search`, hits read as (docid, score)", figures["pyserini"]),
        )
    ]
    ratios = ("ratio", None, figures["ratio_first_pass"], figures["ratio_second_pass"])
    return (
        f"## Retrieval\n\n{figures['topics']:,} topics, {figures['hits']:,} hits, {figures['threads']} threads, the "
        "same hits on both sides. A run makes one pass; in the first, Java is cold.\n\n"
    ) + _table(("", "open, s", "first pass, s", "second pass, s"), [*rows, ratios])


def _score(figures: dict[str, Any]) -> str:
    rates = figures["pairs_per_second"]
    own = {"beamrank, auto": figures["auto_dtype"], "beamrank, float32": "float32"}
    settings = own | {
        "CrossEncoder, defaults": "batch_size 32, float32, sdpa",
        "CrossEncoder, best": figures["best_setting"],
        "CrossEncoder, best in float32": figures["best_setting_float32"],
    }
    return "\n".join(
        [
            f"## Scoring\n\n{figures['pairs']:,} pairs of {figures['tokens_per_pair']} tokens, from texts to log-odds, "
            f"on {figures['device']} with {figures['threads']} threads; log-odds in float32 differ by at most "
            f"{figures['largest_difference_float32']:.1g} from sentence-transformers' CrossEncoder. beamrank "
            f"has {figures['ratio_defaults']} times its rate with its defaults and {figures['ratio_best']} times its "
            "best.\n",
            _table(("side", "setting", "pairs/s"), [(name, settings[name], rate) for name, rate in rates.items()]),
            "How CrossEncoder's best was found, each tried once on a part of the pairs:\n",
            _table(("setting", "pairs/s"), figures["settings_tried"].items()),
        ]
    )


def _memory(figures: dict[str, Any]) -> str:
    peaks, depths = figures["peak_mib_by_topics"], figures["depths"]
    rows = [(stage, *(each[stage] for each in peaks.values()), ratio) for stage, ratio in figures["growth"].items()]
    return (
        "## Memory\n\nPeak resident memory of all processes of a stage's command, in MiB, with bm25.k "
        f"{depths['bm25']}, mono.k {depths['mono']}, duo.k {depths['duo']} and a Java heap of {figures['java_heap']}. "
        "The local runner keeps the join's shuffle in memory: it may grow.\n\n"
    ) + _table(("stage", *(f"{int(topics):,} topics" for topics in peaks), "growth"), rows)


def _dates(parts: dict[str, Any]) -> str:
    rows = [
        (name, part["date"], part["seconds"], part["load_average_before"], f"`{part['command']}`")
        for name, part in parts.items()
    ]
    return "## When\n\n" + _table(("part", "date", "seconds", "load average before the command", "command"), rows)


_SECTIONS = {"run": _run, "tokenize": _tokenize, "retrieve": _retrieve, "mono": _score, "memory": _memory}

"""The results on SQuAD as a page: benchmarks/results/performance.md is written by this module and
by nothing else.
"""

from collections.abc import Iterator, Sequence
from typing import Any

_INTRODUCTION = """# Performance

`make bench` writes this page from `squad.json`: do not edit it. Every figure was
measured on the machine below, beside its peer and in the same run, and is shown as measured, \
including missed targets.
To measure on your machine: `python -m benchmarks --squad ARCHIVE`.
"""
_SECTIONS = {
    "tokenize": "Tokenizing\n\nA new process is cold: it has not seen any word yet.",
    "retrieve": "Retrieval\n\nShards are committed; pyserini's hits of `batch_search` are read as "
    "(docid, score), and are the same. A run makes one pass; in the first, Java is cold.",
    "mono": "Scoring\n\nFrom texts to log-odds, beside sentence-transformers' CrossEncoder with "
    "the same checkpoint. Each of its settings was tried once on a part of the pairs.",
    "run": "The whole run\n\nOne `beamrank run` into an empty folder. A stage's seconds are wall "
    "clock time, from the end of the stage before; receipts hold the time of its shards. The sum "
    "of its parts is the same work as bare calls of the library, without Beam and each in a "
    "process of its own. Scoring is not repeated: its part is the time to load the model plus the "
    "seconds in the receipts. The first shards are scored again, bare.",
    "memory": "Memory\n\nPeak resident memory of all processes of a stage's command. The local "
    "runner keeps the join's shuffle in memory, which may grow.",
}

Figures = dict[str, Any]


def render(results: Figures) -> str:
    """Markdown of a results file, without the parts that were not measured."""
    parts: dict[str, Figures] = results["parts"]
    shown = [_INTRODUCTION, *_tables({**results["machine"], **results["settings"]}, nested=False)]
    targets = [target for part in parts.values() for target in part["targets"]]
    shown += [
        "## Targets\n",
        table([{**target, "met": "yes" if target["met"] else "**no**"} for target in targets]),
    ]
    for name, part in parts.items():
        shown += [f"## {_SECTIONS[name]}\n", *_tables(part["figures"])]
    when = ("date", "seconds", "load_average_before", "command")
    rows = [{"part": name, **{key: part[key] for key in when}} for name, part in parts.items()]
    return "\n".join([*shown, "## When\n", table(rows)])


def _tables(figures: Figures, nested: bool = True) -> Iterator[str]:
    """A table of the plain figures, then one of each group."""
    groups = {
        name: value for name, value in figures.items() if nested and isinstance(value, list | dict)
    }
    plain = [(name, value) for name, value in figures.items() if name not in groups]
    yield table([{"": _words(name), "value": value} for name, value in plain])
    for name, group in groups.items():
        if isinstance(group, list):
            yield table(group)
            continue
        yield table(
            [
                {name: key, **(value if isinstance(value, dict) else {"value": value})}
                for key, value in group.items()
            ]
        )


def table(rows: Sequence[Figures]) -> str:
    """A table of Markdown, with the columns that any row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [map(_words, names), ["---"] * len(names)]
    lines += [[_cell(row.get(name)) for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value)

"""Draws docs/pictures/pipeline.svg.

Every box has its own background, and lines and labels are a gray that is visible on white and on
black: the picture is readable on light and dark pages.
"""

from typing import NamedTuple

_GRAY = "#7d8590"
_INK = "#1f2328"
_DATA, _STAGE = "#e6e8eb", "#cfe3ff"
_TOP, _HEIGHT, _WIDTH, _GAP = 40, 84, 128, 34
_SHARDS = 4


class _Box(NamedTuple):
    title: str
    lines: tuple[str, ...]
    fill: str
    shards_done: int = 0


_BOXES = (
    _Box("topics, corpus", ("TSV, JSONL, BEIR,", "TREC, Parquet, CAR"), _DATA),
    _Box("retrieve", ("BM25 (Lucene):", "bm25.k candidates", "per query"), _STAGE, 4),
    _Box("tokenize", ("one corpus scan:", "each candidate's", "doc once"), _STAGE, 4),
    _Box("mono", ("monoBERT:", "the best mono.k,", "one by one"), _STAGE, 3),
    _Box("duo", ("duoBERT:", "the best duo.k,", "in pairs"), _STAGE, 0),
    _Box("runs", ("TREC runs and,", "with qrels,", "measures"), _DATA),
)


def picture() -> str:
    """The picture as SVG."""
    width = len(_BOXES) * (_WIDTH + _GAP) - _GAP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 226" '
        'font-family="Helvetica, Arial, sans-serif" role="img">',
        "<title>topics and a corpus; retrieve, tokenize, mono, duo; TREC runs and measures</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" '
        f'fill="{_GRAY}"/></marker></defs>',
    ]
    for number, box in enumerate(_BOXES):
        parts += _drawn(box, _left(number))
        if number:
            parts.append(_arrow(_left(number) - _GAP + 2, _left(number) - 3))
    middle = (_left(1) + _left(4) + _WIDTH) // 2
    parts += [
        _text(
            middle,
            20,
            "each stage is a Beam job: local, Prism, Spark, Flink or Dataflow",
            _GRAY,
            13,
        ),
        _text(_left(0) + _WIDTH // 2, 158, "or an existing run", _GRAY, 12),
        _text(_left(0) + _WIDTH // 2, 174, "in place of BM25", _GRAY, 12),
        _text(middle, 190, "shards: a filled one is complete and has a receipt;", _GRAY, 13),
        _text(
            middle,
            208,
            "after an interruption the same command computes only the empty ones",
            _GRAY,
            13,
        ),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _left(number: int) -> int:
    return 10 + number * (_WIDTH + _GAP)


def _drawn(box: _Box, left: int) -> list[str]:
    middle = left + _WIDTH // 2
    parts = [
        f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" rx="8" '
        f'fill="{box.fill}" stroke="{_GRAY}"/>',
        _text(middle, _TOP + 21, box.title, _INK, 15, "bold"),
    ]
    parts += [
        _text(middle, _TOP + 40 + 15 * row, line, _INK, 12) for row, line in enumerate(box.lines)
    ]
    if box.fill == _STAGE:
        for shard in range(_SHARDS):
            fill = "#2f81f7" if shard < box.shards_done else "none"
            x = middle - _SHARDS * 11 + shard * 22 + 2
            y = _TOP + _HEIGHT + 12
            parts.append(
                f'<rect x="{x}" y="{y}" width="18" height="18" rx="3" fill="{fill}" '
                f'stroke="{_GRAY}"/>'
            )
    return parts


def _arrow(start: int, end: int) -> str:
    y = _TOP + _HEIGHT // 2
    return (
        f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="{_GRAY}" stroke-width="2" '
        'marker-end="url(#head)"/>'
    )


def _text(x: int, y: int, text: str, fill: str, size: int, weight: str = "normal") -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="middle" fill="{fill}"'
    return f'<text x="{x}" y="{y}" {style}>{text}</text>'

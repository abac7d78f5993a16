"""A broken run for each check of `beamrank lint`."""

from pathlib import Path

from contrib.lint.check import TRACKS
from contrib.lint.linter import Report, lint_run
from contrib.lint.references import read_references

GOOD = "1 Q0 a 1 3.5 t\n1 Q0 b 2 2.5 t\n1 Q0 c 3 1.5 t\n2 Q0 b 1 9 t\n2 Q0 a 2 1e-05 t\n"
MSMARCO = "1\ta\t1\n1\tb\t2\n2\tb\t1\n"


def _topic(query_id: str, docs: str, scores: str) -> str:
    rows = zip(docs.split(), scores.split(), strict=True)
    return "".join(
        f"{query_id} Q0 {doc_id} {rank} {score} t\n" for rank, (doc_id, score) in enumerate(rows, 1)
    )


_TEN = " ".join("abcdefghij")
_ELEVEN = f"{_TEN} k"
_LOGITS = " ".join(str(5 - n) for n in range(10))
_SHARES = " ".join(str(0.9 - n / 20) for n in range(10))
_METADATA = "# ir_metadata.start\n# {}\n# ir_metadata.end\n" + GOOD
_SHA1 = "a" * 40

# By code: the run, the line of the finding, and the track where it is not `generic`.
BROKEN: dict[str, tuple[str | bytes, int] | tuple[str | bytes, int, str]] = {
    "L101": (GOOD.replace("1.5 t", "1.5 t u"), 3),
    "L102": (GOOD.replace("2 Q0 b", "\n2 Q0 b"), 4),
    "L103": (GOOD.encode().replace(b"Q0 c", b"Q0 c\xff"), 3),
    "L104": ("\ufeff" + GOOD, 1),
    "L105": (GOOD.replace("2.5 t", "2.5 t\r"), 2),
    "L106": (GOOD.replace("2.5 t\n", "2.5 t\r"), 2),
    "L107": (GOOD.replace("Q0 b 2", "Q0 b\0 2"), 2),
    "L108": (GOOD.replace("2 2.5", "2\t2.5"), 2),
    "L109": (GOOD.removesuffix("\n"), 5),
    "L110": (GOOD.replace("2 Q0 b", "#2 Q0 b 1 9 t\n2 Q0 b"), 4),
    "L111": (GOOD.replace("Q0 c", "Q0 " + "c" * (3 << 20)), 3),
    "L112": ("", 1),
    "L201": (GOOD.replace("9 t", "9 u"), 4),
    "L202": ("1 Q0 2 1 3 the.tag\n", 1, "trec-dl"),
    "L203": (GOOD.replace("Q0 c", "0 c"), 3),
    "L204": (_METADATA.format("tag: [t"), 1),
    "L205": (_METADATA.format("tag: other"), 1),
    "L301": (GOOD + "02 Q0 a 1 3 t\n", 6),
    "L302": (GOOD.split("2 Q0 b 1", maxsplit=1)[0], 1),
    "L303": (GOOD + "1 Q0 d 4 1 t\n", 6),
    "L304": (GOOD + "01 Q0 a 1 3 t\n", 6),
    "L305": (GOOD + "3\u00a0 Q0 a 1 3 t\n", 6),
    "L306": ("q1 Q0 12 1 3 t\n", 1, "trec-dl"),
    "L401": (GOOD.replace("Q0 c", "Q0 a"), 3),
    "L402": (GOOD.replace("2 Q0 b", "1 Q0 c 3 1.5 t\n2 Q0 b"), 4),
    "L403": (GOOD.replace("Q0 c", "Q0 c\u2028"), 3),
    "L404": (f"enwiki:A/B Q0 {_SHA1} 1 3 t\nenwiki:A/B Q0 {_SHA1[1:]} 2 2 t\n", 2, "trec-car"),
    "L405": (GOOD.replace("Q0 c", "Q0 d"), 3),
    "L501": (GOOD.replace("c 3", "c 3.0"), 3),
    "L502": (GOOD.replace("b 1 9", "b 2 9").replace("a 2 1e", "a 3 1e"), 4),
    "L503": (GOOD.replace("c 3", "c 5"), 3),
    "L504": (GOOD.replace("c 3", "c 2"), 3),
    "L505": (GOOD.replace("2.5", "4.5"), 2),
    "L506": ("1 Q0 b 2 2.5 t\n1 Q0 a 1 3.5 t\n", 2),
    "L601": (GOOD.replace("1.5", "1,5"), 3),
    "L602": (GOOD.replace("1.5", "nan"), 3),
    "L603": (GOOD.replace("1.5", "2.5"), 2),
    "L604": (GOOD.replace("1.5", "2.50000000001"), 2),
    "L605": (_topic("1", _ELEVEN, _LOGITS + " -4"), 10),
    "L701": (
        _topic("1", " ".join(map(str, range(2, 1003))), " ".join(map(str, range(2000, 999, -1)))),
        1001,
        "msmarco",
    ),
    "L702": ("1\t12\t1\n1\t13\t2\n2\t12\t1\n", 3, "msmarco"),
    "L801": (_topic("1", "a b c", "2 2 2.0"), 1),
    "L802": (_topic("1", "a b c d e", "5 4 3 2 1") + _topic("2", "a b c d e", "9 8 7 6 5"), 6),
    "L803": (_topic("1", "a", "1") + _topic("2", "a b", "2 1") + _topic("3", "a c", "3 2"), 1),
    "L804": (
        _topic("1", _TEN, _LOGITS)
        + _topic("2", _TEN[::-1], _LOGITS)
        + _topic("3", _ELEVEN[2:], _SHARES),
        21,
    ),
    "L805": (GOOD.replace("Q0 b 1 9", "Q0 2 1 9"), 4),
    "L901": (GOOD.replace("Q0 c", "Q0 d"), 3),
    "L902": (GOOD.replace("1 Q0 c 3 1.5 t\n", ""), 1),
    "L903": (GOOD.split("2 Q0 b 1", maxsplit=1)[0], 1),
    "L904": (GOOD.split("2 Q0 b 1", maxsplit=1)[0], 1),
    "L905": ("1 Q0 x 1 3 t\n2 Q0 y 1 3 t\n", 1),
    "L906": ("1 Q0 a 1 3 t\n1 Q0 D007 2 2 t\n2 Q0 b 1 3 t\n", 2),
    "L907": (GOOD.replace("Q0 c", "Q0 x"), 3),
}
# Files that the run is checked against, for the codes that need one.
TOPICS, DOCS, QRELS = "1\tone\n2\ttwo\n", "a\nb\nc\n", "1 0 a 1\n1 0 7 1\n2 0 b 1\n"
GIVEN = {
    "L301": ("topics", TOPICS),
    "L302": ("topics", TOPICS),
    "L405": ("corpus", DOCS),
    "L901": ("first_stage", GOOD),
    "L902": ("first_stage", GOOD),
    "L903": ("first_stage", GOOD),
    "L904": ("qrels", QRELS),
    "L905": ("qrels", QRELS),
    "L906": ("qrels", QRELS),
    "L907": ("exclude", "1 x\n2 y\n"),
}
# What else such a run breaks.
ALSO = {
    "L107": {"L403"},
    "L301": {"L304"},
    "L402": {"L504", "L603"},
    "L605": {"L603"},
    "L901": {"L902"},
}


def lint_broken(code: str, folder: Path) -> Report:
    """Checks the broken run of a code, written to a folder."""
    content, _, *track = BROKEN[code]
    (folder / "some.run").write_bytes(content.encode() if isinstance(content, str) else content)
    references = {}
    if code in GIVEN:
        option, text = GIVEN[code]
        (folder / option).write_text(text)
        references[option] = str(folder / option)
    return lint_run(
        str(folder / "some.run"),
        read_references(**references),
        TRACKS[track[0] if track else "generic"],
    )

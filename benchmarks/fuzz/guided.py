"""Inputs that Atheris chooses, by the branches of our code that they reach, of all targets at once.

`python -m benchmarks.fuzz.guided SECONDS COUNTS KEPT` writes the counts as JSON, and keeps what
fails. It needs `pip install atheris`.
"""

import json
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["beamrank", "models", "contrib"]):
    from beamrank.storage import digested
    from benchmarks.fuzz.__main__ import Session
    from benchmarks.fuzz.inputs import mutate
    from benchmarks.fuzz.targets import TARGETS
    from benchmarks.fuzz.watch import prepare


def main(seconds: float, counts: Path, kept: Path) -> None:
    """Tries inputs for some seconds; the first byte of one is the number of its target. It ends the
    process.
    """
    digested._TICK_NANOSECONDS = 0
    work, rng = Path(tempfile.mkdtemp(prefix="beamrank-fuzz-")), random.Random(0)
    corpus = work / "corpus"
    corpus.mkdir()
    kept.mkdir(parents=True, exist_ok=True)
    sessions = [
        Session(prepare(target, work / str(number)), kept) for number, target in enumerate(TARGETS)
    ]
    for number, session in enumerate(sessions):
        for at, seed in enumerate(session.pool):
            (corpus / f"{number}-{at}").write_bytes(bytes([number]) + seed)
    end = time.monotonic() + seconds

    def try_one(content: bytes) -> None:
        if content:
            sessions[content[0] % len(sessions)].try_one(content[1:], rng)
        if time.monotonic() > end:
            table = {session.prepared.target.name: asdict(session.counts) for session in sessions}
            counts.write_text(json.dumps(table, indent=1) + "\n")
            os._exit(0)

    def change(content: bytes, most_bytes: int, seed: int) -> bytes:
        own = random.Random(seed)
        codec = sessions[content[0] % len(sessions)].prepared.target.codec if content else None
        if own.randrange(2):
            return content[:1] + mutate(content[1:], codec, own.randrange)[: most_bytes - 1]
        return content[:1] + bytes(atheris.Mutate(content[1:], most_bytes - 1))

    # Its own limits count the time of the wall, and the memory of the whole process.
    options = [
        "-max_len=65536",
        "-timeout=86400",
        "-rss_limit_mb=0",
        f"-artifact_prefix={kept}/",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], try_one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))

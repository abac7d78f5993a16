"""Passages tokenized per second, against the `tokenizers` library on as many cores.

"cold" starts with an empty cache of words, as each process of a run does; "warm" tokenizes the same
passages again.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import run_apart
from benchmarks.workspace import Workspace
from models.checkpoints.checkpoint import resolve_checkpoint
from models.tokenizers.library import load_tokenizer

_MAX_TOKENS = 512
_WANTED_PER_SECOND, _WANTED_OVER_LIBRARY = 20_000, 3
# Threads of the library, and its method.
_LIBRARY = {
    "tokenizers encode_batch, one thread": (False, "encode_batch"),
    "tokenizers encode_batch, every core": (True, "encode_batch"),
    "tokenizers encode_batch_fast, every core": (True, "encode_batch_fast"),
}


def measure(workspace: Workspace) -> Part:
    """Passages per second of one and two processes, and of the library on one thread and on every
    core.
    """
    folder = resolve_checkpoint("embedded:mono", "mono").folder
    texts = [doc.text for doc in workspace.squad.passages]
    rounds = [_round(folder, texts) for _ in range(workspace.settings.rounds)]
    seconds = {way: statistics.median(row[way] for row in rounds) for way in rounds[0]}
    rates = {way: round(len(texts) / took) for way, took in seconds.items()}
    cold, library = rates["beamrank, 2 processes, cold"], rates[list(_LIBRARY)[1]]
    over = round(cold / library, 2)
    return Part(
        {
            "passages": len(texts),
            "words_per_passage": round(sum(len(text.split()) for text in texts) / len(texts)),
            "passages_per_second": rates,
            "cold_over_library": over,
        },
        (
            Target(
                "passages tokenized per second, two processes, cold",
                cold,
                "at least",
                _WANTED_PER_SECOND,
            ),
            Target("rate over the library's", over, "at least", _WANTED_OVER_LIBRARY),
        ),
    )


def _round(folder: str, texts: list[str]) -> dict[str, float]:
    """Seconds of each way, measured once, one after the other."""
    seconds: dict[str, float] = {}
    for count, name in ((1, "1 process"), (2, "2 processes")):
        cold, warm = _tokenize_together(folder, texts, count)
        seconds |= {f"beamrank, {name}, cold": cold, f"beamrank, {name}, warm": warm}
    for way, how in _LIBRARY.items():
        seconds[way] = run_apart(tokenize_with_library, folder, texts, *how)
    return seconds


def tokenize_ours(folder: str, texts: list[str], together: Callable[[], Any]) -> list[float]:
    """Seconds of one process, cold and warm; `together` waits for the other processes."""
    tokenizer = load_tokenizer(folder)
    # Arrow's first conversion imports pandas if it is installed; that is not tokenizing.
    tokenizer.encode([""], _MAX_TOKENS)
    seconds = []
    for _ in range(2):
        together()
        seconds.append(_seconds(lambda: tokenizer.encode(texts, _MAX_TOKENS)))
    return seconds


def tokenize_with_library(folder: str, texts: list[str], threads: bool, method: str) -> float:
    """Seconds of the library, including reading the ids."""
    os.environ["TOKENIZERS_PARALLELISM"] = str(threads).lower()
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    library.no_padding()
    library.enable_truncation(_MAX_TOKENS)
    encode = getattr(library, method)
    return _seconds(lambda: [encoding.ids for encoding in encode(texts, add_special_tokens=False)])


def _tokenize_together(folder: str, texts: list[str], count: int) -> list[float]:
    """Seconds of the slowest of several processes that share the passages, cold and warm."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(count, mp_context=spawn) as pool:
        wait = manager.Barrier(count).wait
        shares = [texts[place::count] for place in range(count)]
        seconds = pool.map(tokenize_ours, [folder] * count, shares, [wait] * count)
        return [max(both) for both in zip(*seconds, strict=True)]


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

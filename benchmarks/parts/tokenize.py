"""Passages tokenized per second, against the `tokenizers` library on as many cores.

"cold" starts with an empty cache of words, as each process of a run does; "warm" tokenizes the same
passages again. Ways without a family are plain BERT's; the families' tokenizers are trained on the
passages.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import run_apart
from benchmarks.tokenizer_families import train_families
from benchmarks.workspace import Workspace
from models.checkpoints.checkpoint import resolve_checkpoint
from models.tokenizers.library import load_tokenizer

_MAX_TOKENS = 512
_PROCESSES = 2
_WANTED_PER_SECOND = 20_000
_WANTED_OVER_LIBRARY = 3
_WANTED_OVER_LIBRARY_OF_A_FAMILY = 0.9


def measure(workspace: Workspace) -> Part:
    """Passages per second of one and two processes, and of the library on one thread and on every
    core.
    """
    folder = resolve_checkpoint("embedded:mono", "mono").folder
    texts = [doc.text for doc in workspace.squad.passages]
    families = train_families(workspace.folder, texts)
    rounds = [
        {**_round(folder, texts), **_round_of_families(families, texts)}
        for _ in range(workspace.settings.rounds)
    ]
    seconds = {way: statistics.median(each[way] for each in rounds) for way in rounds[0]}
    rates = {way: round(len(texts) / each) for way, each in seconds.items()}
    cold, library = (
        rates["beamrank, 2 processes, cold"],
        rates["tokenizers encode_batch, every core"],
    )
    cold_over_library = round(cold / library, 2)
    over_library = {
        family: round(rates[_ours(family)] / rates[_library(family)], 2) for family in families
    }
    return Part(
        figures={
            "passages": len(texts),
            "words_per_passage": round(sum(len(text.split()) for text in texts) / len(texts)),
            "passages_per_second": rates,
            "cold_over_library": cold_over_library,
            "families_over_library": over_library,
        },
        targets=(
            Target(
                "passages tokenized per second, two processes, cold",
                cold,
                "at least",
                _WANTED_PER_SECOND,
            ),
            Target(
                "rate of the library that plain BERT has",
                cold_over_library,
                "at least",
                _WANTED_OVER_LIBRARY,
            ),
            *(
                Target(
                    f"rate of the library that {family} has",
                    ratio,
                    "at least",
                    _WANTED_OVER_LIBRARY_OF_A_FAMILY,
                )
                for family, ratio in over_library.items()
            ),
        ),
    )


def _ours(family: str) -> str:
    return f"beamrank, {family}, 1 process, cold"


def _library(family: str) -> str:
    return f"tokenizers encode_batch, {family}, every core"


def _round_of_families(folders: Mapping[str, str], texts: list[str]) -> dict[str, float]:
    """Seconds of one process of beamrank, and of the library, for each family; both use every
    core.
    """
    seconds = {}
    for family, folder in folders.items():
        seconds[_ours(family)] = run_apart(tokenize_ours, folder, texts)[0]
        seconds[_library(family)] = run_apart(
            tokenize_with_library, folder, texts, True, "encode_batch"
        )
    return seconds


def _round(folder: str, texts: list[str]) -> dict[str, float]:
    """Seconds of each way, measured once, one after the other."""
    one_cold, one_warm = run_apart(tokenize_ours, folder, texts)
    two_cold, two_warm = _tokenize_together(folder, texts)
    return {
        "beamrank, 1 process, cold": one_cold,
        "beamrank, 1 process, warm": one_warm,
        "tokenizers encode_batch, one thread": run_apart(
            tokenize_with_library, folder, texts, False, "encode_batch"
        ),
        "beamrank, 2 processes, cold": two_cold,
        "beamrank, 2 processes, warm": two_warm,
        "tokenizers encode_batch, every core": run_apart(
            tokenize_with_library, folder, texts, True, "encode_batch"
        ),
        "tokenizers encode_batch_fast, every core": run_apart(
            tokenize_with_library, folder, texts, True, "encode_batch_fast"
        ),
    }


def tokenize_ours(
    folder: str, texts: list[str], together: Callable[[], Any] = int
) -> tuple[float, float]:
    """Seconds of one process, cold and warm; `together` waits for the other processes."""
    tokenizer = load_tokenizer(folder)
    # Arrow's first conversion imports pandas if it is installed; that is not tokenizing.
    tokenizer.encode([""], _MAX_TOKENS)
    together()
    cold = _seconds(lambda: tokenizer.encode(texts, _MAX_TOKENS))
    together()
    return cold, _seconds(lambda: tokenizer.encode(texts, _MAX_TOKENS))


def tokenize_with_library(folder: str, texts: list[str], threads: bool, method: str) -> float:
    """Seconds of the library, including reading the ids."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads else "false"
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    library.no_padding()
    library.enable_truncation(_MAX_TOKENS)
    encode = getattr(library, method)
    return _seconds(lambda: [encoding.ids for encoding in encode(texts, add_special_tokens=False)])


def _tokenize_together(folder: str, texts: list[str]) -> tuple[float, float]:
    """Seconds of the slowest of several processes that share the passages, cold and warm."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(_PROCESSES, mp_context=spawn) as pool:
        barrier = manager.Barrier(_PROCESSES)
        shares = [texts[place::_PROCESSES] for place in range(_PROCESSES)]
        found = list(
            pool.map(tokenize_ours, [folder] * _PROCESSES, shares, [barrier.wait] * _PROCESSES)
        )
    return max(cold for cold, _ in found), max(warm for _, warm in found)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

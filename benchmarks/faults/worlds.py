"""Collections of the campaign in folders, other contents of their inputs, and what undisturbed runs
of them leave.
"""

import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.faults.cases import INPUTS, draw_world
from benchmarks.faults.launches import Launch, call_apart

Content = Mapping[str, Any]
"""The runs and measures of an output, by their names."""
_PATIENCE_SECONDS = 900.0
_OUTPUTS = ("out", "earlier-*", "*.done")


class Worlds:
    """The collections of a seed, below a folder; each is written, and run undisturbed, when it is
    first asked for.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.undisturbed = cache(self._undisturbed)

    def copy(self, number: int, folder: Path, with_index: bool) -> None:
        """Writes a collection into a new folder, with the index of BM25, where it has one, or
        without.
        """
        self.undisturbed(number, "")
        ignored = shutil.ignore_patterns(*_OUTPUTS, *([] if with_index else ["index"]))
        shutil.copytree(self._written(number, ""), folder, ignore=ignored)

    def change(self, number: int, folder: Path, what: str) -> None:
        """Gives an input of a collection in a folder other content of the same form; `restore`
        gives it back.
        """
        self._copy_input(number, folder, what, what)

    def restore(self, number: int, folder: Path, what: str) -> None:
        """Gives an input its own content."""
        self._copy_input(number, folder, what, "")

    def _copy_input(self, number: int, folder: Path, what: str, changed: str) -> None:
        for name in filter(None, (INPUTS[what], "given.parquet" if what == "given run" else "")):
            source = self._written(number, changed) / name
            if source.exists():
                shutil.copyfile(source, folder / name)

    def _undisturbed(self, number: int, changed: str) -> Content:
        """What a run leaves that nothing disturbs; `changed` is an input with other content."""
        return read_runs(str(self._run(self._written(number, changed), "out", [])))

    def earlier(self, number: int, shards: int) -> Path:
        """The output of an earlier run in so many shards, where these are even of two topics
        only.
        """
        limit = ["--limit", "2"] if shards % 2 == 0 else []
        return self._run(
            self._written(number, ""), f"earlier-{shards}", ["--set", f"shards={shards}", *limit]
        )

    def _written(self, number: int, changed: str) -> Path:
        folder = self.folder / "worlds" / f"{number}-{changed or 'whole'}".replace(" ", "-")
        if not folder.exists():
            call_apart(_write, self.seed, number, changed, folder)
        return folder

    def _run(self, folder: Path, name: str, arguments: Sequence[str]) -> Path:
        done = folder / f"{name}.done"
        if not done.exists():
            words = ["run", str(folder / "config.yaml"), "--output", str(folder / name)]
            cache = {"BEAMRANK_CACHE": str(self.folder / "cache")}
            launch = Launch(folder, [*words, "--only", "0/1", *arguments], cache)
            ended = launch.end(_PATIENCE_SECONDS)
            if ended.code != 0:
                raise RuntimeError(f"an undisturbed run ended with {ended.code}:\n{ended.stderr}")
            done.touch()
        return folder / name


def _write(seed: int, number: int, changed: str, folder: Path) -> None:
    """Writes a collection with tiny models, with other content in one of its inputs."""
    from tests.support.checkpoints import LETTERS, save_pair, save_tiny
    from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

    world = draw_world(seed, number)
    topics = {f"q{topic}": TOPICS[f"q{topic}"] for topic in world.topics}
    docs, step, judged = DOCS, 1, None
    if changed == "corpus":
        docs = _without_amber(DOCS)
    if changed == "list of topics":
        topics = _without_amber(topics)
    if changed == "given run":
        step = -1
    if changed == "list of judgments":
        judged = {query_id: CANDIDATES[query_id][1] for query_id in topics}
    candidates = {query_id: CANDIDATES[query_id][::step] for query_id in topics}
    new = folder.with_name(f".{folder.name}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    sizes = {"max_length": 64, "max_query_length": 16}
    collection = SmallCollection(new, docs, topics, input=sizes, **world.keys)
    is_bm25 = world.first == "bm25"
    given = collection.with_index(9) if is_bm25 else collection.given_run(candidates)
    given.with_qrels(judged)
    if world.first == "table":
        collection.keys["candidates"]["run"] = "given.parquet"
        rows = [
            {"query_id": query_id, "doc_id": doc_id, "rank": rank, "score": 1 / rank}
            for query_id, doc_ids in candidates.items()
            for rank, doc_id in enumerate(doc_ids, 1)
        ]
        pq.write_table(pa.Table.from_pylist(rows), new / "given.parquet")
    save_pair(new, num_hidden_layers=1)
    if changed == "checkpoint":
        save_tiny(new / "mono", LETTERS, 7, type_vocab_size=2, num_hidden_layers=1)
    collection.path.touch()
    new.rename(folder)


def _without_amber(texts: Mapping[str, str]) -> dict[str, str]:
    return {key: text.replace("amber", "basil") for key, text in texts.items()}


def read_runs(output: str) -> Content:
    """The runs and measures of an output. Of a folder of parts all rows, as parts are as many as
    shards.
    """
    filesystem, root = fsspec.core.url_to_fs(output, use_listings_cache=False)
    contents: dict[str, Any] = {}
    for path in sorted(filesystem.find(f"{root}/runs")):
        name, _, part = path.removeprefix(f"{root}/runs/").partition("/")
        if name.endswith((".metadata.yaml", ".tmp")) or part.endswith(".tmp"):
            continue
        rows = content = filesystem.cat_file(path)
        if part.endswith(".parquet"):
            rows = map(str, pq.read_table(pa.BufferReader(content)).to_pylist())
        elif part:
            rows = content.splitlines()
        contents[name] = sorted([*contents.get(name, []), *rows]) if part else content
    return contents

"""BM25 over a Lucene index, as the first stage."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from beamrank.commit.check import Finding, Verification
from beamrank.commit.plan import Plan
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import Bm25Config
from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import text_rules
from beamrank.machine import usable_threads
from beamrank.sources import fetch_part
from beamrank.storage import files as storage
from models.lucene.build import build_index
from models.lucene.index import (
    INFO_NAME,
    IndexKind,
    LocalIndex,
    check_index,
    describe_files,
    files_digest,
    find_damage,
    is_outdated,
    local_index,
    needs_building,
    read_written_info,
)
from models.lucene.jvm import check_language
from models.stages.base import Key, Worker
from models.stages.compute import Computed, ShardInputs
from models.stages.first_stage import FirstStage
from models.stages.planning import Planning, PlanningProgress, threads_of

if TYPE_CHECKING:
    from models.lucene.bm25 import Bm25Searcher

_BUILD_AGAIN = "remove the folder and run again, which builds the index again"


@dataclass(frozen=True, kw_only=True)
class RetrieveBm25(FirstStage):
    """Retrieves `k` candidates for each topic."""

    type_name = "bm25"
    worker = Worker.JVM
    section = Bm25Config

    index_digest: Annotated[str, Key("index.path")]
    k1: Annotated[float, Key("bm25.k1")]
    b: Annotated[float, Key("bm25.b")]
    expansion: Annotated[str | None, Key("bm25.expansion")] = None
    language: Annotated[str, Key("index.language")] = "en"
    index: str
    threads: int

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        """Builds the index first if it does not exist and `planning.builds`."""
        config = planning.config
        assert config.index is not None
        found = planning.builds or not _must_build(config, planning.corpus_digest)
        digest = ensure_index(config, planning.corpus_digest, planning.progress) if found else ""
        index = {
            "index_digest": digest,
            "index": config.index.path,
            "language": config.index.language,
        }
        return super().settings(own, planning) | index | {"threads": threads_of(config)}

    @property
    def is_ready(self) -> bool:
        return self.index_digest != ""

    def _open(self) -> "tuple[LocalIndex, Bm25Searcher]":
        return _opened(
            self.index,
            self.index_digest,
            self.k1,
            self.b,
            self.threads,
            self.language,
            self.expansion,
        )

    def compute(self, inputs: ShardInputs) -> Computed:
        """Searches for the topics; one that matches nothing has no rows and is counted.

        Raises:
            DataError: the index changed since it was opened, so that nothing is committed.
        """
        index, searcher = inputs.opened(self._open)
        try:
            with index.unchanged():
                candidates = searcher.search(inputs.topics, self.to_retrieve(inputs.topics))
        except DataError:
            # Another attempt opens the index again, which checks its content.
            _opened.cache_clear()
            searcher.close()
            raise
        return self.computed(inputs.topics, candidates)

    def verify(self, plan: Plan, found: Verification) -> None:  # noqa: ARG002
        """Reads all files of a local index."""
        if storage.is_remote(self.index):
            found.notes.append(
                f"not checked: the index {self.index}; each copy of it is checked when it is made"
            )
        elif needs_building(self.index):
            found.notes.append(f"not checked: the index {self.index} no longer exists")
        else:
            found.findings += self._damage(found)

    def _damage(self, found: Verification) -> Iterator[Finding]:
        url = self.index
        try:
            info = read_written_info(url)
        except PreflightError:
            yield Finding(
                storage.join(url, INFO_NAME),
                "is not the file that beamrank wrote into the index",
                _BUILD_AGAIN,
            )
            return
        if info is not None and info.digest != self.index_digest:
            found.notes.append(
                f"not checked: the index {url} is not the one that the run was made from"
            )
            return
        files = describe_files(url)
        found.files += len(files)
        found.bytes += sum(file.size_bytes for file in files.values())
        if info is not None:
            for name, problem in find_damage(info, files):
                yield Finding(storage.join(url, name), problem, _BUILD_AGAIN)
        elif files_digest(files) != self.index_digest:
            yield Finding(
                url,
                "is not the index that the run was made from",
                "get that index again, or run again with this one",
            )


@lru_cache(maxsize=1)
def _opened(
    index_url: str,
    index_digest: str,
    k1: float,
    b: float,
    threads: int,
    language: str,
    expansion: str | None,
) -> "tuple[LocalIndex, Bm25Searcher]":
    from models.lucene.bm25 import Bm25Searcher

    index = local_index(index_url, index_digest)
    return index, Bm25Searcher(index.folder, k1, b, threads, language, expansion)


def _must_build(config: RunConfig, corpus: str) -> bool:
    """Whether the index does not exist, or is to be updated to the corpus with this digest."""
    assert config.index is not None
    return needs_building(config.index.path) or (
        config.index.update and is_outdated(config.index.path, corpus)
    )


def ensure_index(config: RunConfig, corpus: str, progress: PlanningProgress) -> str:
    """The digest of the configured index, which is built or updated first if necessary."""
    assert config.index is not None
    check_language(config.index.language)
    path, update = config.index.path, config.index.update
    section = config.first_stage
    expands = isinstance(section, Bm25Config) and section.expansion is not None
    kind = IndexKind(config.index.language, expands)
    if config.index.prebuilt is not None:
        fetch_part(config.index.named, "index", progress)
    elif _must_build(config, corpus):
        changed = is_outdated(path, corpus)
        progress.note(
            f"updating the index {path}: the corpus changed"
            if changed
            else f"building the index {path}"
        )
        with progress.bar("index") as bar:
            info = build_index(
                config.corpus,
                path,
                usable_threads(config.threads),
                bar,
                config.max_bad_rows.docs,
                update,
                kind,
            )
        if info.bad_rows:
            first = "; ".join(f"{row.place}: {row.reason}" for row in info.bad_examples[:3])
            progress.warn(
                f"{info.bad_rows} rows of the corpus are not in the index (first: {first})"
            )
    info = check_index(path, corpus, kind, text_rules(config.corpus))
    if info.empty_docs:
        progress.note(
            f"{info.empty_docs:,} docs of the corpus have no text: BM25 finds none of them"
        )
    for warning in info.warnings:
        progress.warn(warning)
    return info.digest

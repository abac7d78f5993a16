"""Joins candidates with what is stored of their docs, such as tokens: one scan of the corpus, one
shuffle (docs/internals/join.md).
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.receipts import Receipt
from beamrank.commit.scans import read_scans
from beamrank.commit.schemas import Texts
from beamrank.commit.shards import ShardTask
from beamrank.config.cascade import ConfiguredStage
from beamrank.errors import DataError
from beamrank.formats.corpora import FORMATS
from beamrank.join.doc_hashes import cut_needed
from beamrank.join.join import MissingDoc, candidate_keys, join_shard
from beamrank.storage.documents import hashes64
from models.stages.base import FIRST, Key, Stage
from models.stages.planning import Planning


@dataclass(frozen=True, kw_only=True)
class JoinDocs(Stage):
    """Makes what later stages read of the first `k` candidates of each query."""

    inputs = (FIRST,)
    does = "join"
    ranks = False
    reads_input = True
    item_letters = item_bytes = 1
    """About how many letters of a text what the encoder counts has, and the bytes that it takes."""

    corpus_digest: Annotated[str, Key("corpus.path")]
    k: Annotated[int, Key("{deepest}.k")]
    on_missing_doc: Annotated[Literal["error", "drop"], Key("on_missing_doc")]
    # The stage that receives most docs.
    deepest: str
    of_queries: bool = False

    @staticmethod
    def common_fields(planning: Planning) -> dict[str, Any]:
        """The fields of every join."""
        config = planning.config
        deepest = max(config.cascade[1:], key=lambda own: own.section.k)
        return {
            "corpus_digest": planning.corpus_digest,
            "k": deepest.section.k,
            "on_missing_doc": config.on_missing_doc,
            "deepest": deepest.name,
            "of_queries": FORMATS[config.corpus.format].lists_candidates,
        }

    @classmethod
    @abstractmethod
    def of_stages(cls, readers: Sequence[ConfiguredStage], planning: Planning) -> Self:
        """What these stages read, the same for all."""

    @property
    def scan_digest(self) -> str:
        return self.corpus_digest

    @property
    @abstractmethod
    def encoder(self) -> Any:
        """What makes what is stored of texts: a tokenizer, or its like for other types."""

    @property
    @abstractmethod
    def most(self) -> int:
        """How much is stored of a text, as the encoder counts."""

    @property
    def part_schema(self) -> pa.Schema:
        """The columns that `beamrank.join.join.join_shard` makes, with their metadata."""
        return self.schema

    def finished(self, table: pa.Table, task: ShardTask) -> pa.Table:  # noqa: ARG002
        """A part with the columns that `part_schema` lacks."""
        return table

    def needed(self, task: ShardTask, ranges: int) -> Iterator[tuple[int, bytes]]:
        """The docs that a shard needs, cut by range of the hash
        (`beamrank.join.doc_hashes.cut_needed`).
        """
        keys = candidate_keys(self._candidates(task), self.of_queries)
        return cut_needed(task.shard, hashes64(keys), ranges)

    def _candidates(self, task: ShardTask) -> pa.Table:
        """The first `k` candidates of each query."""
        table = task.inputs[0].read()
        return table.filter(pc.less_equal(table["rank"], self.k))

    def join(
        self, task: ShardTask, docs: pa.Table, number: int, place: Callable[[int, int], str]
    ) -> Receipt:
        """Joins one shard with the docs that the shuffle brought, and commits it.

        Args:
            task: the shard's.
            docs: `beamrank.join.join.sent_docs`.
            number: the stage's, among those that `docs` has contents for.
            place: puts the number of a corpus unit and a position into words.

        Raises:
            DataError: a needed doc is missing from the corpus or appears twice in it.
        """
        start = time.monotonic()
        topics = [topic.text for topic in task.topics]
        queries = self.encoder.encode_queries(topics, self.most)
        joined = join_shard(
            self.part_schema,
            [topic.query_id for topic in task.topics],
            Texts.of(queries.ids, topics),
            self._candidates(task),
            docs,
            place,
            self.of_queries,
            number,
        )
        if joined.missing and self.on_missing_doc == "error":
            raise self._missing_error(task, joined.missing)
        table = self.finished(joined.table, task)
        doc_ids = pc.list_flatten(table["doc_ids"])
        counts = {
            "queries": table.num_rows,
            "docs": len(doc_ids),
            "distinct_docs": pc.count_distinct(doc_ids).as_py(),
            "truncated_queries": int(np.count_nonzero(queries.truncated)),
            "truncated_docs": joined.truncated_docs,
            "missing_docs": len(joined.missing),
        }
        return task.commit(
            table,
            seconds=time.monotonic() - start,
            counts=counts,
            bad_rows=len(joined.missing),
            examples=[f"doc {each} is not in the corpus" for each in joined.missing[:5]],
        )

    def _missing_error(self, task: ShardTask, missing: Sequence[MissingDoc]) -> DataError:
        """Names the docs, and the rows of the corpus that could not be read: they may be among
        those.
        """
        scan = read_scans(task.folder.url, self.corpus_digest)
        cause = "Check that the corpus is the one that the index or the given run was made from"
        if scan.bad_rows:
            cause = (
                f"Rows of the corpus that could not be read: {scan.bad_rows:,} (first: "
                f"{scan.examples[0]}). These docs may be among them: correct those rows"
            )
        return DataError(
            f"candidate docs of shard {task.shard} that are not in the corpus: {len(missing)} "
            f"(first: {', '.join(map(str, missing[:5]))}). Their scores would be missing from the "
            f"run. {cause}, or set on_missing_doc: drop"
        )

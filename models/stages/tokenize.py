"""Joins candidates with the tokens of their docs: one scan of the corpus, one shuffle
(docs/internals/join.md).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.scans import read_scans, report_scan
from beamrank.commit.shards import ShardTask
from beamrank.config.cascade import ConfiguredStage
from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import FORMATS, read_unit
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join import schemas
from beamrank.join.doc_hashes import (
    NeededList,
    OpenedList,
    cut_needed,
)
from beamrank.join.join import (
    MissingDoc,
    by_shard,
    candidate_keys,
    doc_tokens,
    doc_tokens_schema,
    join_shard,
)
from beamrank.join.schemas import Texts, tokenized_schema
from beamrank.ranking.input_layout import max_doc_tokens
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import hashes64
from beamrank.topic_table import TopicTable
from models.checkpoints.checkpoint import fetch_tokenizer, tokenizer_of
from models.stages.base import Key, Stage
from models.stages.first_stage import FIRST
from models.stages.planning import Planning
from models.stages.scatter import SentRows
from models.tokenizers.base import InstructedTokenizer, Tokenizer
from models.tokenizers.prompts import Joins

_FLUSH_TOKENS = 4 << 20
_ROW_OVERHEAD_BYTES = 64
_TOKEN_BYTES = 2
_LETTERS_PER_TOKEN = 4
_SAMPLE_DOCS = 1000
_open_list = lru_cache(maxsize=2)(OpenedList)


@dataclass(frozen=True, kw_only=True)
class TokenizeDocs(Stage):
    """Tokenizes the first `k` candidates of each query for a model: one stage for each distinct
    tokenizer.
    """

    type_name = "tokenize"
    step = "tokenize"
    inputs = (FIRST,)
    does = "join"
    ranks = False
    reads_input = True

    corpus_digest: Annotated[str, Key("corpus.path")]
    tokenizer_digest: Annotated[str, Key("{model}.checkpoint")]
    max_doc_tokens: Annotated[int, Key("wordpieces kept of a doc")]
    k: Annotated[int, Key("{first}.k")]
    on_missing_doc: Annotated[Literal["error", "drop"], Key("on_missing_doc")]
    # The stage whose checkpoint has the tokenizer, and the one that receives most docs.
    model: str
    first: str
    checkpoint: str
    vocab_size: int
    of_queries: bool = False
    # Follows from the topics, which the digests of the shards cover, and from the tokenizer.
    instructions: bool = False
    # The tokenizer's digest covers it.
    joins: Joins | None = None

    @classmethod
    def of_models(cls, models: Sequence[ConfiguredStage], planning: Planning) -> Self:
        """The stage that makes the tokens for stages with one tokenizer.

        Args:
            models: these stages.
            planning: what is planned.
        """
        config, checkpoint = planning.config, planning.checkpoints[models[0].name]
        first = max(config.stages[1:], key=lambda own: own.section.k)
        tokenizer, length = tokenizer_of(checkpoint), config.input.max_length
        kept = (
            each.section.doc_tokens(length * planning.checkpoints[each.name].doc_parts)
            for each in models
        )
        return cls(
            corpus_digest=planning.corpus_digest,
            tokenizer_digest=tokenizer.digest,
            max_doc_tokens=max(map(max_doc_tokens, kept)),
            k=first.section.k,
            on_missing_doc=config.on_missing_doc,
            model=models[0].name,
            first=first.name,
            checkpoint=checkpoint.reference,
            vocab_size=tokenizer.vocab_size,
            of_queries=FORMATS[config.corpus.format].lists_candidates,
            instructions=config.reads_instructions and isinstance(tokenizer, InstructedTokenizer),
            joins=checkpoint.joins,
        )

    @property
    def name(self) -> str:
        return f"tokenize-{self.tokenizer_digest[:8]}"

    @property
    def scan_digest(self) -> str:
        return self.corpus_digest

    @property
    def schema(self) -> pa.Schema:
        return schemas.tokenized(self.vocab_size, self.instructions)

    @property
    def sent_schema(self) -> pa.Schema:
        """The columns of the rows that `scan` sends."""
        return doc_tokens_schema(schemas.token_type(self.vocab_size))

    def sent_bytes(self, docs: int, unit: CorpusUnit) -> float:
        """About how many bytes so many docs have in the shuffle, by the letters of the first docs
        of a unit.
        """
        letters: list[int] = []
        for batch in read_unit(unit):
            letters += map(len, batch.texts)
            if len(letters) >= _SAMPLE_DOCS:
                break
        tokens = sum(min(count / _LETTERS_PER_TOKEN, self.max_doc_tokens) for count in letters)
        return docs * (_ROW_OVERHEAD_BYTES + _TOKEN_BYTES * tokens / max(1, len(letters)))

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

    def scan(
        self, unit: CorpusUnit, file: DigestedFile, needed: NeededList, folder: StageFolder
    ) -> Iterator[SentRows]:
        """Tokenizes the needed docs of one corpus unit, each once, and addresses them to the shards
        that want them.

        Args:
            unit: the unit.
            file: its file as the corpus's digest covers it.
            needed: the list of the needed docs.
            folder: the stage's, where a report of the unit is left.

        Raises:
            DataError: the unit cannot be read, or its file is not, or no longer, the one that was
                digested.
        """
        tokenizer, opened = self.tokenizer, _open_list(needed.urls)
        schema = self.sent_schema
        start = time.monotonic()
        rejects = Rejects("docs", NO_LIMIT)
        docs = 0
        buffer: list[pa.RecordBatch] = []
        shards: list[np.ndarray] = []
        with file.unchanged():
            for batch in read_unit(unit, rejects):
                keys = batch.keys
                docs += len(keys)
                rows, needed_by = opened.lookup(hashes64(keys))
                in_job = (needed_by >= needed.shards[0]) & (needed_by < needed.shards[1])
                rows, needed_by = rows[in_job], needed_by[in_job]
                if len(rows):
                    distinct, row_of = np.unique(rows, return_inverse=True)
                    found_keys, positions, texts = (
                        [column[row] for row in distinct]
                        for column in (keys, batch.positions, batch.texts)
                    )
                    tokens = tokenizer.encode(texts, self.max_doc_tokens)
                    found = doc_tokens(
                        schema,
                        found_keys,
                        unit.index,
                        positions,
                        Texts.of(tokens.ids, texts),
                        tokens.truncated,
                    )
                    buffer.append(found.take(pa.array(row_of)))
                    shards.append(needed_by)
                if sum(len(each["tokens"].values) for each in buffer) > _FLUSH_TOKENS:
                    yield from by_shard(buffer, shards)
                    buffer, shards = [], []
            yield from by_shard(buffer, shards)
        report_scan(folder.url, self.corpus_digest, unit.index, docs, rejects, start)

    def join(
        self,
        task: ShardTask,
        batches: Sequence[pa.RecordBatch],
        place: Callable[[int, int], str],
    ) -> Receipt:
        """Joins one shard from the tokens that the shuffle brought, and commits it.

        Args:
            task: the shard's.
            batches: the tokens.
            place: puts the number of a corpus unit and a position into words.

        Raises:
            DataError: a needed doc is missing from the corpus or appears twice in it.
        """
        start = time.monotonic()
        tokenizer = self.tokenizer
        docs = pa.Table.from_batches(batches, self.sent_schema)
        topics = [topic.text for topic in task.topics]
        queries = tokenizer.encode_queries(topics, self.max_doc_tokens)
        joined = join_shard(
            tokenized_schema(tokenizer),
            [topic.query_id for topic in task.topics],
            Texts.of(queries.ids, topics),
            self._candidates(task),
            docs,
            place,
            self.of_queries,
        )
        if joined.missing and self.on_missing_doc == "error":
            raise self._missing_error(task, joined.missing)
        table = joined.table
        if isinstance(tokenizer, InstructedTokenizer) and self.instructions:
            instructions = TopicTable.of(task.topics).instructions
            columns = Texts.of(tokenizer.encode_instructions(instructions).ids, instructions)
            names = (schemas.INSTRUCTION_TOKENS, schemas.INSTRUCTION_DIGEST)
            for name, column in zip(names, columns, strict=True):
                table = table.append_column(self.schema.field(name), column)
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

    @property
    def tokenizer(self) -> Tokenizer:
        """This process's tokenizer. Only the checkpoint's tokenizer files are fetched, not its
        weights.
        """
        return _open_tokenizer(self.checkpoint, self.tokenizer_digest, self.joins)


@lru_cache(maxsize=2)
def _open_tokenizer(checkpoint: str, digest: str, joins: Joins | None) -> Tokenizer:
    """A checkpoint's tokenizer, as it was planned with; raises PreflightError where it changed."""
    tokenizer = fetch_tokenizer(checkpoint, joins)
    if tokenizer.digest != digest:
        raise PreflightError(
            f"the tokenizer of {checkpoint} changed since the run was planned: its digest is "
            f"{tokenizer.digest[:12]}, the plan has {digest[:12]}. Tokens of two vocabularies "
            "would be mixed: run again to plan it again"
        )
    return tokenizer

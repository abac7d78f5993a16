"""The tokens of the docs that stages with one tokenizer read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Self

import pyarrow as pa

from beamrank.commit import schemas
from beamrank.commit.schemas import Texts, tokenized_schema
from beamrank.commit.shards import ShardTask
from beamrank.config.cascade import ConfiguredStage
from beamrank.errors import PreflightError
from beamrank.formats.topic_table import TopicTable
from beamrank.ranking.input_layout import max_doc_tokens
from models.checkpoints.checkpoint import fetch_tokenizer, tokenizer_of
from models.stages.base import Key
from models.stages.join_docs import JoinDocs
from models.stages.planning import Planning
from models.tokenizers.base import InstructedTokenizer, Tokenizer
from models.tokenizers.prompts import Joins

_MOST_TOKENIZERS = 8


@dataclass(frozen=True, kw_only=True)
class TokenizeDocs(JoinDocs):
    """Tokenizes the first `k` candidates of each query for a model: one stage for each distinct
    tokenizer.
    """

    type_name = "tokenize"
    step = "tokenize"
    item_letters, item_bytes = 4, 2
    tokenizer_digest: Annotated[str, Key("{model}.checkpoint")]
    max_doc_tokens: Annotated[int, Key("wordpieces kept of a doc")]
    # The stage whose checkpoint has the tokenizer.
    model: str
    checkpoint: str
    vocab_size: int
    # Follows from the topics, which the digests of the shards cover, and from the tokenizer.
    instructions: bool = False
    # The tokenizer's digest covers it.
    joins: Joins | None = None

    @classmethod
    def of_stages(cls, models: Sequence[ConfiguredStage], planning: Planning) -> Self:
        """`models` have one tokenizer."""
        config, checkpoint = planning.config, planning.checkpoints[models[0].name]
        tokenizer, length = tokenizer_of(checkpoint), config.input.max_length
        kept = (
            each.section.doc_tokens(length * planning.checkpoints[each.name].doc_parts)
            for each in models
        )
        return cls(
            **cls.common_fields(planning),
            tokenizer_digest=tokenizer.digest,
            max_doc_tokens=max(map(max_doc_tokens, kept)),
            model=models[0].name,
            checkpoint=checkpoint.reference,
            vocab_size=tokenizer.vocab_size,
            instructions=config.reads_instructions and isinstance(tokenizer, InstructedTokenizer),
            joins=checkpoint.joins,
        )

    @property
    def name(self) -> str:
        return f"tokenize-{self.tokenizer_digest[:8]}"

    @property
    def schema(self) -> pa.Schema:
        return schemas.tokenized(self.vocab_size, self.instructions)

    @property
    def part_schema(self) -> pa.Schema:
        return tokenized_schema(self.encoder)

    @property
    def most(self) -> int:
        return self.max_doc_tokens

    def finished(self, table: pa.Table, task: ShardTask) -> pa.Table:
        """With the instructions of topics, where a stage reads them."""
        tokenizer = self.encoder
        if isinstance(tokenizer, InstructedTokenizer) and self.instructions:
            instructions = TopicTable.of(task.topics).instructions
            columns = Texts.of(tokenizer.encode_instructions(instructions).ids, instructions)
            names = (schemas.INSTRUCTION_TOKENS, schemas.INSTRUCTION_DIGEST)
            for name, column in zip(names, columns, strict=True):
                table = table.append_column(self.schema.field(name), column)
        return table

    @property
    def encoder(self) -> Tokenizer:
        """This process's tokenizer. Only the checkpoint's tokenizer files are fetched, not its
        weights.
        """
        return _open_tokenizer(self.checkpoint, self.tokenizer_digest, self.joins)


@lru_cache(maxsize=_MOST_TOKENIZERS)
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

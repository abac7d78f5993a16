"""The texts of the docs that stages without a tokenizer read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import pyarrow as pa

from beamrank.commit import schemas
from beamrank.config.cascade import ConfiguredStage
from models.stages.base import Key
from models.stages.join_docs import JoinDocs
from models.stages.planning import Planning
from models.tokenizers.base import TokenColumn, check_unicode

TEXTS = "texts"


class CutTexts:
    """Keeps the beginnings of texts, as a tokenizer keeps those of their tokens."""

    def encode(self, texts: Sequence[str], max_bytes: int) -> TokenColumn:
        """The texts up to so many bytes of UTF-8, without a character that would be cut in two;
        raises as `Tokenizer.encode`.
        """
        check_unicode(texts)
        content = [text.encode() for text in texts]
        kept = [each[:max_bytes].decode(errors="ignore") for each in content]
        truncated = np.array([len(each) > max_bytes for each in content], np.bool_)
        return TokenColumn(pa.array(kept, pa.large_string()), truncated)

    encode_queries = encode


@dataclass(frozen=True, kw_only=True)
class PassTexts(JoinDocs):
    """Brings the texts of the first `k` candidates of each query, cut at `max_text_bytes`."""

    type_name = TEXTS
    name = step = TEXTS
    schema = schemas.TEXTS
    encoder = CutTexts()

    max_text_bytes: Annotated[int, Key("input.max_text_bytes")]

    @classmethod
    def of_stages(cls, readers: Sequence[ConfiguredStage], planning: Planning) -> Self:  # noqa: ARG003
        most = planning.config.input.max_text_bytes
        return cls(max_text_bytes=most, **cls.common_fields(planning))

    @property
    def most(self) -> int:
        return self.max_text_bytes

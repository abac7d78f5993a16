"""The stages that re-rank docs by the vectors of an encoder.

A score is the similarity that the checkpoint names, of vectors that the stage makes of the texts
itself: nothing is indexed.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit import schemas
from beamrank.commit.working import shard_at_work
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import PointwiseConfig
from beamrank.errors import DataError, PreflightError
from beamrank.machine import usable_threads
from beamrank.ranking.input_layout import Lengths
from beamrank.section import CheckpointName
from contrib.encoders.checkpoint import EncoderCheckpoint, libraries
from models.scoring.answers import Answers, Contents, Cut
from models.stages.base import Key, Worker
from models.stages.compute import Computed, ShardInputs
from models.stages.planning import Planning, threads_of
from models.stages.pointwise import Pointwise
from models.stages.scoring import check_planned

if TYPE_CHECKING:
    from contrib.encoders.encoder import Encoder


class EncoderConfig(PointwiseConfig):
    """An encoder."""

    short = "checkpoint"
    checkpoint: CheckpointName
    """A Hugging Face id, a folder or its URL."""


@dataclass(frozen=True, kw_only=True)
class EncoderStage(Pointwise):
    """Scores a doc by its vectors and those of the query. A candidate counts as an inference,
    although its doc may have been encoded for another query.
    """

    section = EncoderConfig
    needs = "texts"
    worker = Worker.MODEL

    checkpoint_digest: Annotated[str, Key("{own_name}.checkpoint")]
    libraries: Annotated[dict[str, str], Key("versions of libraries")]
    backend: Annotated[str, Key("backend")] = "sentence-transformers"
    device: Annotated[str, Key("device")]
    dtype: Annotated[str, Key("dtype")] = "float32"
    checkpoint: str
    threads: int
    gpu: int | None = None

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> EncoderCheckpoint:  # noqa: ARG003
        libraries()
        return EncoderCheckpoint.read(own.section.checkpoint, cls.type_name)

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        checkpoint: EncoderCheckpoint = planning.checkpoints[own.name]
        kind, _, number = planning.device.device.partition(":")
        return super().settings(own, planning) | {
            "checkpoint": checkpoint.reference,
            "checkpoint_digest": checkpoint.digest,
            "libraries": libraries(),
            "device": kind,
            "gpu": int(number) if number else None,
            "threads": threads_of(planning.config),
        }

    @property
    def reuses(self) -> bool:
        """Whether it reuses scores of earlier runs: on a GPU a score depends on its batch."""
        return self.device == "cpu"

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:
        contents = Contents.of(tokens, instructed=False)
        rows = contents.find(part["query_id"].to_pylist(), part["doc_id"].to_pylist())
        return dict(zip(_keys(contents, *rows), part["score"].to_pylist(), strict=True))

    def count(self, inputs: ShardInputs) -> int:
        return int(np.isnan(self._known(inputs)[1]).sum())

    def compute(self, inputs: ShardInputs) -> Computed:
        """Scores what no earlier part answers; raises DataError where the checkpoint's files
        changed, so that nothing is committed.
        """
        checkpoint = inputs.opened(self.resolved)
        with ExitStack() as unchanged:
            for file in checkpoint.files:
                unchanged.enter_context(file.unchanged())
            pairs, scores = self._known(inputs)
            rest = np.flatnonzero(np.isnan(scores))
            scored = _Texts.of(pairs, inputs.read(self.tokens), rest)
            if len(rest):
                work = shard_at_work()
                work.add(0, len(rest))
                encoder = inputs.opened(self.open)
                scores[rest] = encoder.score(*scored, work.add)
        pairs.check(scores)
        counts = {
            "candidates": len(scores),
            "inferences": len(rest),
            "reused": len(scores) - len(rest),
            "encoded_queries": len(scored.queries),
            "encoded_docs": len(scored.docs),
        }
        return Computed(pairs.table(scores), counts)

    def resolved(self) -> EncoderCheckpoint:
        """The checkpoint on this machine; raises PreflightError where it is not the one that was
        planned.
        """
        return _checkpoint(self.checkpoint, self.type_name, self.checkpoint_digest)

    def open(self) -> "Encoder":
        """This process's encoder, loaded again where a file was written.

        Raises:
            PreflightError: this machine's libraries are others than the plan's.
        """
        found = libraries()
        if found != self.libraries:
            raise PreflightError(
                f"the run was planned with {_listed(self.libraries)}, and this machine has "
                f"{_listed(found)}, whose vectors can differ: install the same versions everywhere"
            )
        checkpoint = self.resolved()
        versions = tuple(file.find_version() for file in checkpoint.files)
        device = self.device if self.gpu is None else f"{self.device}:{self.gpu}"
        threads = usable_threads(self.threads)
        return _encoder(self.type_name, checkpoint.folder, versions, device, threads)

    def _known(self, inputs: ShardInputs) -> tuple["_Pairs", npt.NDArray[np.float32]]:
        """The docs that are scored, and the scores that earlier parts have; NaN for the others."""
        pairs = _Pairs.of(inputs.read(self.tokens), self.received(inputs))
        keys = _keys(pairs.contents, pairs.queries, pairs.docs)
        answers = inputs.find(keys)
        return pairs, np.array([answers.get(key, np.nan) for key in keys], np.float32)


class Dense(EncoderStage):
    """By one vector of a text."""

    type_name = "dense"


class Sparse(EncoderStage):
    """By weights of the words of a vocabulary."""

    type_name = "sparse"


class Late(EncoderStage):
    """By a vector of each token: late interaction."""

    type_name = "late"


class _Pairs(NamedTuple):
    """The n docs of a shard that a stage receives, those of a query side by side, best first.

    Attributes:
        contents: the shard's texts.
        found: the query_id, the doc_id and the rank of each.
        queries: int64[n], the rows of their queries.
        docs: int64[n], their rows among all candidates.
    """

    contents: Contents
    found: Sequence[tuple[str, str, int]]
    queries: Lengths
    docs: Lengths

    @classmethod
    def of(cls, texts: pa.Table, received: Mapping[str, Sequence[str]]) -> Self:
        """Docs that the corpus lacks have no text, and are left out."""
        contents = Contents.of(texts, instructed=False)
        found = [
            (query_id, doc_id, rank)
            for query_id, doc_ids in sorted(received.items())
            for rank, doc_id in enumerate(doc_ids, 1)
            if (query_id, doc_id) in contents.rows
        ]
        ids = ([row[0] for row in found], [row[1] for row in found])
        return cls(contents, found, *contents.find(*ids))

    def check(self, scores: npt.NDArray[np.float32]) -> None:
        """Raises DataError where a score is NaN or infinite."""
        broken = np.flatnonzero(~np.isfinite(scores))
        if len(broken):
            query_id, doc_id, _ = self.found[broken[0]]
            raise DataError(
                f"scores that are NaN or infinite: {len(broken):,} (first: query_id {query_id}, "
                f"doc_id {doc_id}). The checkpoint's weights are damaged, or its vectors are zero"
            )

    def table(self, scores: npt.NDArray[np.float32]) -> pa.Table:
        """Their rows."""
        query_ids, doc_ids, ranks = zip(*self.found, strict=True) if self.found else ((), (), ())
        columns = [query_ids, doc_ids, np.zeros(len(scores), np.int16), ranks, scores]
        return pa.table(columns, schema=schemas.MONO)


class _Texts(NamedTuple):
    """What an encoder is given: equal texts of a shard once, and the pairs of their numbers."""

    queries: Sequence[str]
    docs: Sequence[str]
    pairs: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, pairs: _Pairs, texts: pa.Table, rest: Lengths) -> Self:
        """Those of some of the pairs."""
        queries, of_query = _distinct(pairs.contents.topics, pairs.queries[rest])
        docs, of_doc = _distinct(pairs.contents.docs, pairs.docs[rest])
        return cls(
            texts["query"].take(pa.array(queries)).to_pylist(),
            pc.list_flatten(texts["doc_texts"]).take(pa.array(docs)).to_pylist(),
            list(zip(of_query.tolist(), of_doc.tolist(), strict=True)),
        )


def _distinct(digests: npt.NDArray[np.uint8], rows: Lengths) -> tuple[Lengths, Lengths]:
    """The rows of distinct texts, and for each of the given rows the number of its text."""
    _, first, numbers = np.unique(digests[rows], axis=0, return_index=True, return_inverse=True)
    return rows[first], numbers.ravel()


def _keys(contents: Contents, queries: Lengths, docs: Lengths) -> list[bytes]:
    return contents.keys(queries, Cut(docs, np.zeros_like(docs), contents.doc_lengths[docs]))


def _listed(versions: Mapping[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in sorted(versions.items()))


@lru_cache(maxsize=1)
def _checkpoint(reference: str, stage: str, digest: str) -> EncoderCheckpoint:
    checkpoint = EncoderCheckpoint.read(reference, stage)
    check_planned(reference, checkpoint.digest, digest)
    return checkpoint


# The versions of its files name a model that was written anew.
@lru_cache(maxsize=1)
def _encoder(
    stage: str,
    folder: str,
    versions: tuple[str, ...],  # noqa: ARG001
    device: str,
    threads: int,
) -> "Encoder":
    # With torch.
    from contrib.encoders.encoder import Encoder

    return Encoder(stage, folder, device, threads)

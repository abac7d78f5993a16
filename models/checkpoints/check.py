"""Checkpoints: cross-encoders, checked by name and shape before anything starts.

The check reads config.json and the header of the weights; it needs no torch where these are safetensors.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from beamrank.errors import ConfigError, PreflightError
from beamrank.ranking.input_layout import SEGMENTS, Truncation
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import digest, validated
from models.architectures.protocol import Architecture, ModelFiles
from models.architectures.registry import read_architecture
from models.checkpoints.files import (
    PROMPTS,
    digest_files,
    digest_of,
    read_config,
    read_json,
    read_modules,
    weighted_modules,
)
from models.checkpoints.sources import EMBEDDED, EMBEDDED_PAIR, locate
from models.checkpoints.tokenizer_fit import check_fit
from models.checkpoints.weights import tensor_reader, tensor_shapes, weight_files
from models.forks import check_process
from models.tokenizers.files import keeps_ends

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Prompts:
    """The key of config_sentence_transformers.json that changes what a model reads."""

    default_prompt_name: str | None = None


_PROMPTS = TypeAdapter(_Prompts)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine.

    Attributes:
        folder: config.json, tokenizer and weights, in the format of Hugging Face.
        digest: SHA-256 over these files.
        reference: finds it from any machine; a Hugging Face id has its commit.
        kind: `mono` or `duo`, its use.
        weights: the names of the weights' files; of several, their index is first.
        architecture: the model that the files describe.
        config: config.json.
        files: the files that the digest covers.
    """

    folder: str
    digest: str
    reference: str
    kind: str
    weights: tuple[str, ...]
    architecture: Architecture
    config: Mapping[str, Any] = field(compare=False)
    files: tuple[DigestedFile, ...] = field(default=(), compare=False)

    @property
    def weights_bytes(self) -> int:
        """The size of the weights' files."""
        return sum(os.path.getsize(os.path.join(self.folder, name)) for name in self.weights)

    @property
    def doc_parts(self) -> int:
        """How many parts the model cuts a doc into; `max_length` limits an input of one."""
        return self.architecture.template(SpecialTokens(0, 0, 0, ((),) * 4)).doc_parts

    def find_versions(self) -> tuple[str, ...]:
        """The versions of all files now, which change whenever a file is written."""
        return tuple(file.find_version() for file in self.files)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """`DigestedFile.unchanged` for all files; weights are mapped, so they are read while a model scores."""
        with ExitStack() as stack:
            for file in self.files:
                stack.enter_context(file.unchanged())
            yield

    def check_length(self, max_length: int, truncation: Truncation = "original") -> None:
        """Raises PreflightError where inputs of max_length tokens are too long, or cut otherwise than the model's."""
        if truncation == "hf" and keeps_ends(self.folder):
            raise PreflightError(
                f"the tokenizer of the checkpoint {self.reference} cuts texts at the beginning (truncation_side left), "
                "and input.truncation `hf` keeps it: set truncation_side to right in tokenizer_config.json, "
                "or another input.truncation"
            )
        positions = self.architecture.positions
        if max_length > positions:
            raise PreflightError(
                f"the checkpoint {self.reference} knows {positions} positions and input.max_length is {max_length}: "
                f"set input.max_length to {positions} or less"
            )

    def check_weights(self) -> None:
        """Raises PreflightError where a weight is NaN or infinite. It reads them all, so once a job is enough."""
        for _ in _read_weights(self):
            pass

    def check_tokenizer(self, ids: int, special: SpecialTokens) -> tuple[str, ...]:
        """Compares a tokenizer with the model: see `check_fit`.

        Args:
            ids: it gives ids from 0 to `ids` - 1.
            special: its special tokens.

        Returns:
            Warnings.

        Raises:
            PreflightError: it does not fit the model.
        """
        template = self.architecture.template(special)
        if NO_TOKEN in (*template.start, *chain(*template.ends), template.pad_id):
            missing = ", ".join(name for name, token_id in special._asdict().items() if token_id == NO_TOKEN)
            raise PreflightError(
                f"the tokenizer of the checkpoint {self.reference} lacks special tokens ({missing}) that go around the "
                "texts of this model's input: name them in tokenizer_config.json (cls_token, sep_token, pad_token), or "
                "give the checkpoint its own tokenizer"
            )
        # The ids of a prompt are looked up by their spelling.
        prompt, rows = self.architecture.prompt, self.architecture.vocab_size
        warnings = check_fit(self.reference, {} if prompt else self.config, rows, ids, special)
        return () if prompt else warnings


def resolve_checkpoint(reference: str, kind: str) -> Checkpoint:
    """Finds a checkpoint, brings it to this machine and checks that it can be used.

    Args:
        reference: `embedded:mono`, `embedded:duo`, a folder, an fsspec URL, or a Hugging Face id, `@revision` or not.
        kind: `mono` or `duo`.

    Raises:
        ConfigError: the kind is unknown.
        PreflightError: the checkpoint does not exist, cannot be reached or is not a cross-encoder that can be scored.
    """
    if kind not in SEGMENTS:
        raise ConfigError(f"a checkpoint is used as mono or duo, not as {kind!r}")
    if reference in EMBEDDED_PAIR and reference != f"{EMBEDDED}{kind}":
        raise PreflightError(
            f"{reference} is not a {kind}BERT, so its scores would rank at random: give {EMBEDDED}{kind}"
        )
    folder, definite = locate(reference)
    config = read_config(folder, definite)
    modules = read_modules(folder)
    _refuse_prompts(os.path.join(folder, PROMPTS), definite)
    weights = weight_files(folder)
    tensors = tensor_shapes(folder, definite)
    for module in weighted_modules(modules):
        shapes = tensor_shapes(os.path.join(folder, module.folder), definite)
        tensors |= {f"{module.folder}/{name}": shape for name, shape in shapes.items()}
    architecture = read_architecture(ModelFiles(definite, config, tensors, modules, folder), SEGMENTS[kind])
    files = digest_files(folder)
    content = digest_of(files, folder)
    # A layout that is not the family's decides scores too. An architecture from outside has one layout.
    own = getattr(architecture, "own_layout", None)
    whole = content if own is None else digest([content, asdict(own)])
    return Checkpoint(folder, whole, definite, kind, weights, architecture, config, files)


def load_weights(checkpoint: Checkpoint) -> "dict[str, torch.Tensor]":
    """The tensors that the checkpoint's architecture needs, float32 on the CPU.

    Raises:
        PreflightError: a weight is NaN or infinite.
    """
    for warning in checkpoint.architecture.warnings:
        logging.getLogger(__name__).warning("%s", warning)
    return {name: tensor.float() for name, tensor in _read_weights(checkpoint)}


def _read_weights(checkpoint: Checkpoint) -> "Iterator[tuple[str, torch.Tensor]]":
    """The tensors by name, as they are stored.

    Raises:
        BeamrankError: this process was forked from one that used torch.
        PreflightError: a weight is NaN or infinite.
    """
    check_process("load")
    names = checkpoint.architecture.tensors
    for folder in sorted({name.rpartition("/")[0] for name in names}):
        read = tensor_reader(os.path.join(checkpoint.folder, folder))
        for name in names:
            below, _, own = name.rpartition("/")
            if below != folder:
                continue
            tensor = read(own)
            if not tensor.isfinite().all():
                raise PreflightError(
                    f"the checkpoint {checkpoint.reference}: {name} holds NaN or infinity, so its scores would be NaN. "
                    "Its training diverged, or the file is damaged"
                )
            yield name, tensor


def _refuse_prompts(path: str, reference: str) -> None:
    """Raises PreflightError for a model that puts an instruction before its inputs."""
    if not os.path.isfile(path):
        return
    try:
        prompt = validated(_PROMPTS, read_json(path)).default_prompt_name
    except ValueError as error:
        raise PreflightError(f"{path} cannot be used: {error}") from error
    if prompt:
        raise PreflightError(
            f"the checkpoint {reference} puts the prompt {prompt!r:.100} before its inputs (default_prompt_name in "
            f"{PROMPTS}), which beamrank does not: its scores would be others"
        )

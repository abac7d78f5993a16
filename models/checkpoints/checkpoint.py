"""Checkpoints: cross-encoders, checked by name and shape before anything starts.

The check reads config.json and the header of the weights; it needs no torch where these are
safetensors.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from beamrank.config.stages import OF_TOPICS
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.ranking.input_layout import (
    TEXT_COUNTS,
    InputLimits,
    Truncation,
    kept_lengths,
    mono_kept,
)
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import digest
from models.architectures.families import find_reader, read_architecture
from models.architectures.protocol import Architecture, ModelFiles
from models.checkpoints.files import (
    CONFIG,
    PROMPTS,
    TRAINED_INPUT,
    StoredTensor,
    check_case,
    check_settings,
    default_prompt,
    digest_files,
    digest_of,
    read_config,
    read_modules,
    read_settings,
    saved_length,
    tensor_reader,
    tensor_shapes,
    weight_files,
    weighted_modules,
)
from models.checkpoints.sources import EMBEDDED, EMBEDDED_PAIR, locate
from models.tokenizers.base import InstructedTokenizer, Tokenizer
from models.tokenizers.files import TOKENIZER_FILES, TokenizerFiles
from models.tokenizers.library import check_prefix_space, load_tokenizer
from models.tokenizers.prompts import Joins, PromptTokenizer

if TYPE_CHECKING:
    import torch


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
        files: what the digest covers.
    """

    folder: str
    digest: str
    reference: str
    kind: str
    weights: tuple[str, ...]
    architecture: Architecture = field(hash=False)
    config: Mapping[str, Any] = field(compare=False)
    files: tuple[DigestedFile, ...] = field(default=(), compare=False)

    @property
    def weights_bytes(self) -> int:
        """The size of the weights' files."""
        return sum(os.path.getsize(os.path.join(self.folder, name)) for name in self.weights)

    @property
    def doc_parts(self) -> int:
        """How many parts the model cuts a doc into; `max_length` limits an input of one."""
        return self.architecture.template(SpecialTokens(0, 0, 0)).doc_parts

    @property
    def joins(self) -> Joins | None:
        """The pieces of its prompt that are tokenized with the texts, if its input is one."""
        prompt = getattr(self.architecture, "prompt", None)
        return None if prompt is None else prompt.joins

    def find_versions(self) -> tuple[str, ...]:
        """The versions of all files now, which change whenever a file is written."""
        return tuple(file.find_version() for file in self.files)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """`DigestedFile.unchanged` for all files; weights are mapped, so they are read while a
        model scores.
        """
        with ExitStack() as stack:
            for file in self.files:
                stack.enter_context(file.unchanged())
            yield

    def check_length(self, max_length: int, truncation: Truncation = "original") -> None:
        """Raises PreflightError where inputs of max_length tokens are too long, or cut otherwise
        than the model's.
        """
        if truncation == "hf" and TokenizerFiles(self.folder).keeps_ends:
            raise PreflightError(
                f"the tokenizer of the checkpoint {self.reference} cuts texts at the beginning "
                "(truncation_side left), and input.truncation `hf` keeps it: set truncation_side "
                "to right in tokenizer_config.json, or another input.truncation"
            )
        positions = self.architecture.positions
        if max_length > positions:
            raise PreflightError(
                f"the checkpoint {self.reference} knows {positions} positions and "
                f"input.max_length is {max_length}: set input.max_length to {positions} or less"
            )

    def check_limits(
        self, tokenizer: Tokenizer, limits: InputLimits, instructions: Sequence[str] | None = None
    ) -> None:
        """Raises ConfigError where the limits do not fit inputs of the model, with the instructions
        of topics.
        """
        template, nothing = self.architecture.template(tokenizer.special), np.empty(0, np.int64)
        if len(template.ends) == TEXT_COUNTS[self.kind]:
            kept_lengths(template, limits, [nothing] * len(template.ends))
            return
        if instructions is None or not isinstance(tokenizer, InstructedTokenizer):
            raise ConfigError(
                f'instruction "{OF_TOPICS}" is that of each topic of a run: give the instruction '
                "itself"
            )
        lengths = np.diff(
            tokenizer.encode_instructions(instructions).ids.offsets.to_numpy()
        ).astype(np.int64)
        mono_kept(template, limits, np.zeros_like(lengths), np.zeros_like(lengths), lengths)

    def check_weights(self) -> None:
        """Raises PreflightError where a weight is NaN or infinite. It reads them all, so once a job
        is enough.
        """
        for _ in _read_weights(self):
            pass

    def check_tokenizer(self, ids: int, special: SpecialTokens) -> tuple[str, ...]:
        """`check_fit` for the model's input, whose special tokens the tokenizer must have."""
        template = self.architecture.template(special)
        around = (*template.start, *chain(*template.ends), template.pad_id)
        if NO_TOKEN in around:
            missing = ", ".join(
                name for name, token_id in special._asdict().items() if token_id == NO_TOKEN
            )
            raise PreflightError(
                f"the tokenizer of the checkpoint {self.reference} lacks special tokens "
                f"({missing}) that go around the texts of this model's input: name them in "
                "tokenizer_config.json (cls_token, sep_token, pad_token), or give the checkpoint "
                "its own tokenizer"
            )
        return check_fit(
            self.reference,
            self.config,
            self.architecture.vocab_size,
            max(ids, 1 + max(around)),
            special,
        )


def resolve_checkpoint(
    reference: str,
    kind: str,
    instruction: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Finds a checkpoint, brings it to this machine and checks that it can be used as `mono` or
    `duo`.

    Args:
        reference: `embedded:mono`, `embedded:duo`, a folder, an fsspec URL, or a Hugging Face id,
            `@revision` or not.
        kind: `mono` or `duo`.
        instruction: for a model whose prompt holds one; default: its own. The digest covers it.
        options: of its architecture. The digest covers what they decide.

    Raises:
        PreflightError: the checkpoint does not exist, cannot be reached or is not a cross-encoder
            that can be scored.
    """
    if kind not in TEXT_COUNTS:
        raise ConfigError(f"a checkpoint is used as mono or duo, not as {kind!r}")
    if reference in EMBEDDED_PAIR and reference != f"{EMBEDDED}{kind}":
        raise PreflightError(
            f"{reference} is not a {kind}BERT, so its scores would rank at random: give "
            f"{EMBEDDED}{kind}"
        )
    folder, definite = locate(reference)
    config = read_config(folder, definite)
    modules = read_modules(folder)
    default, options = default_prompt(folder), options or {}
    settings = read_settings(folder)
    check_settings(settings, folder, definite, config)
    weights = weight_files(folder)
    tensors = tensor_shapes(folder, definite)
    for module in weighted_modules(modules):
        shapes = tensor_shapes(os.path.join(folder, module.folder), definite)
        tensors |= {f"{module.folder}/{name}": shape for name, shape in shapes.items()}
    model_files = ModelFiles(
        definite,
        config,
        tensors,
        modules,
        folder,
        instruction,
        default,
        settings.modality_config,
        options,
    )
    architecture = read_architecture(model_files, TEXT_COUNTS[kind])
    if unread := options.keys() - {*getattr(find_reader(config), "options", ())}:
        raise PreflightError(f"{model_files} has no option {min(unread)!r}: leave it out")
    if getattr(architecture, "prompt", None) is None:
        _refuse_prompts(model_files)
    files = digest_files(folder)
    content = digest_of(files, folder)
    # A layout that is not the family's decides scores too. An architecture from outside has one
    # layout.
    layout, decides = (getattr(architecture, name, ()) for name in ("own_layout", "decides"))
    identity = digest([content, asdict(layout), *decides]) if layout else content
    return Checkpoint(folder, identity, definite, kind, weights, architecture, config, files)


def load_weights(checkpoint: Checkpoint) -> "dict[str, torch.Tensor]":
    """The tensors that the checkpoint's architecture needs, float32 on the CPU."""
    for warning in checkpoint.architecture.warnings:
        logging.getLogger(__name__).warning("%s", warning)
    return {name: stored.tensor().float() for name, stored in _read_weights(checkpoint)}


def _read_weights(checkpoint: Checkpoint) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors by name, as they are stored; raises PreflightError where one is NaN or
    infinite.
    """
    check_process("load")
    readers: dict[str, Callable[[str], StoredTensor]] = {}
    for name in sorted(checkpoint.architecture.tensors, key=lambda name: name.rpartition("/")[0]):
        folder, _, tensor_name = name.rpartition("/")
        if folder not in readers:
            readers = {folder: tensor_reader(os.path.join(checkpoint.folder, folder))}
        stored = readers[folder](tensor_name)
        if not stored.is_finite():
            raise PreflightError(
                f"the checkpoint {checkpoint.reference}: {name} holds NaN or infinity, so its "
                "scores would be NaN. Its training diverged, or the file is damaged"
            )
        yield name, stored


def _refuse_prompts(files: ModelFiles) -> None:
    """Raises PreflightError for a text before inputs that have no place for it."""
    if files.instruction is not None:
        raise PreflightError(f"{files} has no instruction in its input: leave out `instruction`")
    if files.default_prompt:
        raise PreflightError(
            f"{files} puts the prompt {files.default_prompt!r:.100} before its inputs "
            f"(default_prompt_name in {PROMPTS}), which beamrank does not: its scores would be "
            "others"
        )


# Tables of embeddings are padded to a multiple of this for a GPU.
_PADDED_ROWS = 128
# The keys of config.json that name a special token. RoBERTa's positions depend on the id of
# padding, and the other two begin and end its texts. Elsewhere they mean little: models with
# another family's tokenizer have them from their family, and padding is not read.
_KEYS = {"cls_id": ("cls_token_id",), "sep_id": ("sep_token_id",)}
_ROBERTA_KEYS = {
    "pad_id": ("pad_token_id",),
    "cls_id": ("cls_token_id", "bos_token_id"),
    "sep_id": ("sep_token_id", "eos_token_id"),
}
_ROBERTAS = ("roberta", "xlm-roberta", "camembert")


def check_fit(
    reference: str, config: Mapping[str, Any], rows: int, ids: int, special: SpecialTokens
) -> tuple[str, ...]:
    """Compares a tokenizer, which gives `ids` ids, with a model, whose table of embeddings has so
    many rows.

    Returns:
        Warnings: the table has many more rows than the tokenizer ids, or padding has another id.

    Raises:
        PreflightError: an id has no row, or config.json names another id for a special token.
    """
    if ids > rows:
        raise PreflightError(
            f"the tokenizer of the checkpoint {reference} has {ids:,} ids and the model's "
            f"embedding table {rows:,} rows: it is not the tokenizer that the model was trained "
            "with, and some of its tokens have no embedding. Give the checkpoint its own tokenizer"
        )
    keys = _ROBERTA_KEYS if config.get("model_type") in _ROBERTAS else _KEYS
    for role, names in keys.items():
        token_id = getattr(special, role)
        for key in names:
            expected = config.get(key)
            if (
                token_id != NO_TOKEN
                and isinstance(expected, int)
                and expected >= 0
                and expected != token_id
            ):
                raise PreflightError(
                    f"the tokenizer of the checkpoint {reference} has the id {token_id} for its "
                    f"{role[:3]}_token, and config.json has {key} {expected}: it is probably not "
                    "the tokenizer that the model was trained with. Give the checkpoint its own "
                    f"tokenizer; if this is it, set {key} to {token_id} in config.json"
                )
    # A model that answers with a word: its prompt's tokens were looked up by their spelling.
    if special == SpecialTokens(NO_TOKEN, NO_TOKEN, NO_TOKEN):
        return ()
    warnings = []
    padding = config.get("pad_token_id")
    if isinstance(padding, int) and special.pad_id not in (padding, NO_TOKEN) and padding >= 0:
        warnings.append(
            f"the tokenizer of {reference} pads with the id {special.pad_id}, and config.json has "
            f"pad_token_id {padding}: no score depends on it, but check that the tokenizer is the "
            "one of the model"
        )
    if rows > -(-ids // _PADDED_ROWS) * _PADDED_ROWS:
        warnings.append(
            f"the tokenizer of {reference} has {ids:,} ids and the model's embedding table "
            f"{rows:,} rows, more than padding to a multiple of {_PADDED_ROWS} explains: if it is "
            "not the tokenizer that the model was trained with, tokens mean other words than the "
            "model has learned, and scores rank at random"
        )
    return tuple(warnings)


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """A checkpoint's tokenizer; raises PreflightError where it does not fit the checkpoint's
    model.
    """
    return _tokenizer_of(checkpoint, checkpoint.find_versions())


# A plan asks for it many times, and a large vocabulary takes a second.
@lru_cache(maxsize=2)
def _tokenizer_of(checkpoint: Checkpoint, _versions: tuple[str, ...]) -> Tokenizer:
    tokenizer = _load_tokenizer(checkpoint.folder, checkpoint.config, checkpoint.joins)
    checkpoint.check_tokenizer(tokenizer.vocab_size, tokenizer.special)
    check_prefix_space(checkpoint.folder)
    check_case(checkpoint.folder, checkpoint.reference, tokenizer)
    return tokenizer


def warnings_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Warnings for the user of a checkpoint: about its model, and how its tokenizer fits it."""
    tokenizer = tokenizer_of(checkpoint)
    fit = checkpoint.check_tokenizer(tokenizer.vocab_size, tokenizer.special)
    return (*checkpoint.architecture.warnings, *fit)


def input_warnings(checkpoint: Checkpoint, limits: Mapping[str, object]) -> tuple[str, ...]:
    """Warnings where the `limits`, the options of `input`, differ from the checkpoint's training or
    settings.
    """
    trained, warnings = checkpoint.config.get(TRAINED_INPUT), []
    if isinstance(trained, Mapping):
        other = [
            f"input.{name}={trained[name]}"
            for name in limits
            if trained.get(name, limits[name]) != limits[name]
        ]
        if other:
            warnings.append(
                f"the model {checkpoint.reference} was trained with {', '.join(other)}: scores "
                "with other inputs are worse"
            )
    return (*warnings, *_cut_warnings(checkpoint, int(str(limits["max_length"]))))


def _cut_warnings(checkpoint: Checkpoint, max_length: int) -> Iterator[str]:
    """A warning where sentence-transformers cuts texts otherwise."""
    saved = saved_length(checkpoint.folder)
    if saved and (saved.tokens < max_length or (saved.is_own and saved.tokens != max_length)):
        yield (
            f"the model {checkpoint.reference} was saved for inputs of {saved.tokens:.0f} tokens "
            f"({saved.source}), and input.max_length is {max_length}: sentence-transformers cuts "
            "there, so the scores of longer inputs are others"
        )
    if TokenizerFiles(checkpoint.folder).keeps_ends:
        yield (
            f"the tokenizer of the model {checkpoint.reference} cuts texts at the beginning "
            "(truncation_side left), and every input.truncation keeps it: the model was trained on "
            "the ends of long docs, so their scores are worse"
        )


def fetch_tokenizer(reference: str, joins: Joins | None = None) -> Tokenizer:
    """The tokenizer of a checkpoint, with the `joins` of its prompt. Brings only small files to
    this machine.
    """
    folder, definite = locate(reference, (CONFIG, *TOKENIZER_FILES))
    has_config = os.path.isfile(os.path.join(folder, CONFIG))
    return _load_tokenizer(folder, read_config(folder, definite) if has_config else {}, joins)


def _load_tokenizer(folder: str, config: Mapping[str, Any], joins: Joins | None) -> Tokenizer:
    if joins is not None:
        return PromptTokenizer(folder, joins)
    load: Callable[[str], Tokenizer] = getattr(
        find_reader(config), "load_tokenizer", load_tokenizer
    )
    return load(folder)


_Use = Literal["load", "score"]
# The process that first loaded a model, and that which first scored.
_first: dict[_Use, int] = {}


def check_process(use: _Use) -> None:
    """Notes that this process is about to use torch; raises BeamrankError where it would hang,
    after a fork.
    """
    process_id = os.getpid()
    # A model that was loaded and not used can score in several processes.
    uses: tuple[_Use, ...] = ("load", "score") if use == "load" else ("score",)
    earlier = next((_first[use] for use in uses if _first.get(use, process_id) != process_id), None)
    if earlier is not None:
        raise BeamrankError(
            f"this process ({process_id}) was forked from one that computed with torch "
            f"({earlier}), whose threads do not survive a fork: it would wait for them for ever. "
            "Start workers with the `spawn` method, or before the first model is loaded"
        )
    _first.setdefault(use, process_id)

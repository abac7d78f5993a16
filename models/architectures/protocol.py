"""The protocol of an architecture, the files that it is read from, and the checks of them that
families share.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from pydantic import Field

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens
from beamrank.storage.documents import usable
from models.tokenizers.files import TokenizerFiles
from models.tokenizers.prompts import Prompt, PromptTemplate

if TYPE_CHECKING:
    import torch

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_Keys = TypeVar("_Keys")

ELSEWHERE = (
    "Its own library or a server can score it; beamrank takes a run of these scores as `candidates`"
)
"""The way for a checkpoint that beamrank does not score."""
_NUMBER = re.compile(r"\.\d+\.")
_POSITIVE = {"relevant", "positive", "pos", "true", "yes", "1", "label_1", "entailment"}
_POSITIVE |= {"duplicate", "match", "related", "similar"}
_NEGATIVE = {"irrelevant", "negative", "neg", "false", "no", "0", "label_0", "contradiction"}
# Beginnings that make a word of a label its opposite; `ir` is for irrelevant.
_NEGATIONS = ("not", "no", "non", "in", "un", "dis", "ir")
_Label = bool | int | float | Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class _Labels:
    """The keys of config.json that name the logits."""

    id2label: dict[int, _Label] | None = None
    label2id: dict[str, int] | None = None


class Module(NamedTuple):
    """A module of sentence-transformers: the name of its class, its folder, and its config.json,
    empty if it has none.

    The names of its tensors in `ModelFiles.tensors` are `FOLDER/NAME`.
    """

    kind: str
    folder: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class ModelFiles:
    """The content of a checkpoint's files, apart from the weights' values.

    Attributes:
        reference: names the checkpoint in errors.
        config: config.json.
        tensors: the shape of each tensor.
        modules: the modules in modules.json, which run one after the other; empty without it.
        folder: holds the files on this machine.
        instruction: replaces the checkpoint's own in its prompt; None keeps it.
        default_prompt: the text that sentence-transformers puts before inputs, or gives a chat
            template as the instruction.
        modalities: the kinds of input that sentence-transformers takes, with how it reads them.
        options: of the architecture, as the user gives them.
    """

    reference: str
    config: Mapping[str, Any]
    tensors: Shapes = field(default_factory=dict)
    modules: tuple[Module, ...] = ()
    folder: str = ""
    instruction: str | None = None
    default_prompt: str = ""
    modalities: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"the checkpoint {self.reference}"

    def keys(self, kind: type[_Keys]) -> _Keys:
        """Some keys of config.json as a dataclass; raises PreflightError where one is missing or
        invalid.
        """
        return usable(kind, self.config, f"config.json of {self}")

    def read_chat(self, segments: int) -> Prompt | None:
        """The prompt of the chat template that sentence-transformers renders; None where it renders
        none.
        """
        is_read = not self.modules or "message" in self.modalities
        if not is_read or not TokenizerFiles(self.folder).has_chat_template:
            return None
        form = self.modalities.get("message", {}).get("format")
        return self.read_prompt(PromptTemplate(self.folder, self.reference, form=form), segments)

    def read_prompt(self, template: PromptTemplate, segments: int) -> Prompt:
        """The prompt of a template, with the instruction of the user or of the checkpoint."""
        return template.read(segments, self.instruction, self.default_prompt)

    @property
    def class_name(self) -> str:
        """The class of transformers that config.json names first, or nothing."""
        classes = self.config.get("architectures")
        return str(classes[0]) if isinstance(classes, list) and classes else ""


class Architecture(Protocol):
    """A cross-encoder of one family, as its files describe it. The weights are not loaded.

    One whose layout the checkpoint's tokenizer decides has `own_layout`, an `InputTemplate` or None
    for the family's, and `decides`, what else of the user's options its digest covers; one whose
    input is a prompt has that as `prompt`, which may be None too. One that `shares_prefix` gets
    batches of inputs that are the same up to their last text, `TokenRows.prefix`.
    """

    @property
    def num_labels(self) -> int:
        """The number of logits of the head: 1, or 2 whose difference is the score."""

    @property
    def positions(self) -> int:
        """The maximum number of tokens of an input."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids with an embedding."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user of the checkpoint."""

    @property
    def tensors(self) -> Shapes:
        """The tensors that `build` needs, all of which the checkpoint has."""

    def template(self, special: SpecialTokens) -> InputTemplate:
        """The special tokens and token types around the texts of an input."""

    def build(
        self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype"
    ) -> "torch.nn.Module":
        """Builds the model on the CPU.

        Args:
            weights: the values of `tensors`, float32.
            dtype: of the layers; the head is float32, because log-odds in fewer bits tie.

        Returns:
            A module whose `forward(rows)` takes the `kernels.attention.TokenRows` of inputs, as
            many for each score as `template` has `doc_parts`, and returns float32 log-odds. On a
            CPU, the bits of a score must not depend on the other inputs. A module with a method
            `pack() -> Layout` gets rows in that layout there; others get rows without padding.
        """


ArchitectureReader: TypeAlias = Callable[[ModelFiles, int], Architecture]
"""Reads an architecture for inputs of so many texts. Raises PreflightError for a checkpoint that
cannot be scored.

One whose texts are not tokenized by the checkpoint's tokenizer alone has `load_tokenizer(folder) ->
Tokenizer`; one with options of the user's has `options`, their names. The architecture `CHUNKED`
(`models/training/config.py`) has `trained(config, chunks)`: the class and the configuration of
transformers that `beamrank train` makes.
"""


def check_class(files: ModelFiles, rotary: bool = False) -> None:
    """Makes sure that a checkpoint is a sequence classifier, computed by the code of its family,
    and that its positions are `rotary` or in a table.
    """
    name = files.class_name
    if "For" in name and not name.endswith("ForSequenceClassification"):
        raise PreflightError(
            f"{files} is a {name:.100}, which is not supported: beamrank scores sequence "
            "classifiers (...ForSequenceClassification) and, of the language models that answer "
            f"with a word, Qwen2's, Qwen3's and T5's. {ELSEWHERE}"
        )
    check_attention(files, rotary)


def check_attention(files: ModelFiles, rotary: bool = False) -> None:
    """Makes sure that a model reads both ways, by the positions that it has (rotary ones, or those
    of a table), without code of its own.
    """
    config = files.config
    positions = config.get("position_embedding_type", "absolute")
    if positions not in (("absolute", "rope", "rotary") if rotary else ("absolute",)):
        raise PreflightError(
            f"{files} has position_embedding_type {positions!r:.100}, which its "
            "model does not have: its scores would be another model's"
        )
    if config.get("is_decoder"):
        raise PreflightError(f"{files} is a decoder (is_decoder): a re-ranker reads both ways")
    if config.get("auto_map"):
        raise PreflightError(
            f"{files} comes with its own code (auto_map), which is never run: its model may "
            f"differ from the {config['model_type']} that beamrank knows. {ELSEWHERE}"
        )


def count_labels(files: ModelFiles, classifier: str) -> int:
    """The number of logits of the head, one or two, by the rows of its last matrix, the tensor
    `classifier`.
    """
    size = files.tensors.get(classifier)
    if size is None:
        inside = next((name for name in files.tensors if name.endswith(f".{classifier}")), None)
        raise PreflightError(
            f"{files} has no {classifier}: "
            + (
                "it is a bare encoder, which gives no scores. Fine-tune it as a re-ranker first"
                if inside is None
                else f"its names come from a wrapper, such as {inside}. Save the model inside it"
            )
        )
    if len(size) != 2:
        raise PreflightError(f"{files} has a {classifier} of {size}, not one row a label")
    if size[0] not in (1, 2):
        raise PreflightError(f"{files} has {size[0]} labels; a re-ranker has one logit or two")
    check_labels(files, size[0])
    return size[0]


def check_labels(files: ModelFiles, labels: int) -> None:
    """Makes sure that config.json names as many labels as the head has, and the relevant one
    last.
    """
    keys = files.keys(_Labels)
    names, ids = keys.id2label, keys.label2id or {}
    if names is not None and len(names) != labels:
        raise PreflightError(
            f"{files} contradicts itself: id2label has {len(names)} labels, its weights {labels}"
        )
    if labels != 2:
        return
    spelled = {place: str(name).strip().lower() for place, name in (names or {}).items()}
    by_name = {place: name.strip().lower() for name, place in ids.items()}
    first, second = (_words((spelled or by_name).get(place, "")) for place in (0, 1))
    if _is_reversed(first, second):
        raise PreflightError(
            f"{files} has a reversed id2label: {names or ids}. The score is logit 1 - logit 0, so "
            "label 1 must be the relevant one, or every ranking would be upside down; swap the "
            "classifier's two rows"
        )
    if spelled and not by_name.items() <= spelled.items():
        raise PreflightError(
            f"config.json of {files} contradicts itself: its id2label is {names}, and its label2id "
            f"{ids}. The score is logit 1 - logit 0, so label 1 must be the relevant one, or every "
            "ranking would be upside down: find out which it is, and correct the other key"
        )


def _words(label: str) -> list[str]:
    return re.split(r"[\W_]+", label)


def _is_reversed(first: list[str], second: list[str]) -> bool:
    """Whether the words of label 0 mean relevant, or the words of label 1 not relevant."""
    return (
        "_".join(first) in _POSITIVE
        or "_".join(second) in _NEGATIVE
        or "".join(second) in _opposites(first)
        or any("".join(second) in _opposites(name.split("_")) for name in _POSITIVE)
    )


def _opposites(words: list[str]) -> set[str]:
    """The names, without spaces, of the opposite of a label."""
    places = range(len(words))
    return {
        "".join([*words[:place], negation, *words[place:]])
        for negation in _NEGATIONS
        for place in places
    }


def check_tensors(files: ModelFiles, expected: Shapes, roots: tuple[str, ...] = ()) -> None:
    """Makes sure that a checkpoint has the tensors that its config.json calls for, and no others
    (`refuse_unread`).
    """
    missing = [name for name in expected if name not in files.tensors]
    if missing:
        raise PreflightError(
            f"{files} lacks {len(missing)} of the {len(expected)} tensors that its config.json "
            f"calls for: {', '.join(missing[:3])}"
        )
    for name, size in expected.items():
        if files.tensors[name] != size:
            raise PreflightError(
                f"{files}: {name} is {files.tensors[name]}, config.json calls for {size}"
            )
    refuse_unread(files, expected, roots)


def refuse_unread(files: ModelFiles, expected: Shapes, roots: tuple[str, ...] = ()) -> None:
    """Raises PreflightError for weights that the model of config.json would leave out.

    They belong to further layers, or to the `roots` or a part that it has: biases, adapters,
    relative positions.
    """
    kinds = {_NUMBER.sub(".#.", name) for name in expected}
    below = (*roots, *{name.rpartition(".")[0] + "." for name in expected})
    unread = [
        name
        for name in sorted(files.tensors.keys() - expected.keys())
        if _NUMBER.sub(".#.", name) in kinds
        or (name.startswith(below) and not name.endswith(("_ids", "inv_freq")))
    ]
    if unread:
        raise PreflightError(
            f"{files} has {len(unread)} tensors that config.json does not call for "
            f"({', '.join(unread[:3])}): without them its scores would be another model's. "
            "Give it the config.json that it was saved with (the number of layers, the keys about "
            "biases), or merge its adapters into the weights"
        )

"""The files of a checkpoint's folder: Hugging Face's names, what config.json and modules.json hold,
a digest; and what sentence-transformers reads beside a model, sentence_bert_config.json, of which
each key is followed, changes no score, or is refused.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, ConfigDict, Field, StrictBool
from safetensors import safe_open

from beamrank.errors import PreflightError
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.storage.documents import digest, parse_json, read_usable
from models.architectures.protocol import ELSEWHERE, Module
from models.tokenizers.base import Tokenizer
from models.tokenizers.files import TOKENIZER_FILES, TokenizerFiles

if TYPE_CHECKING:
    import torch


SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"
# Each format, first the one that transformers takes where a folder has several.
WEIGHTS = (SAFETENSORS, SAFETENSORS + _INDEX, PICKLED, PICKLED + _INDEX)
SAFETENSORS_PARTS, PICKLED_PARTS = "model-*-of-*.safetensors", "pytorch_model-*-of-*.bin"
PARTS = {SAFETENSORS + _INDEX: SAFETENSORS_PARTS, PICKLED + _INDEX: PICKLED_PARTS}
"""As patterns: the files that an index names."""
ADAPTER = "adapter_config.json"
CONFIG = "config.json"
TRAINED_INPUT = "trained_input"
"""Of config.json: the options of `input` that `beamrank train` used."""
SENTENCE_TRANSFORMERS = "modules.json"
PROMPTS, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"
MODULE_FILES = (CONFIG, SAFETENSORS, PICKLED)
# As patterns, with the names that sentence-transformers gives the folders of modules.
_MODULES_BELOW = tuple(
    f"[0-9]*_{kind}/{name}"
    for kind in ("Pooling", "Dense", "LayerNorm", "LogitScore")
    for name in MODULE_FILES
)
CHECKPOINT_FILES = (
    *(CONFIG, *TOKENIZER_FILES, SENTENCE_TRANSFORMERS, PROMPTS, TRANSFORMER, ADAPTER),
    *(*WEIGHTS, *PARTS.values()),
    *_MODULES_BELOW,
)
_MOST_JSON_BYTES = 1 << 26
_Value = TypeVar("_Value")
# For each type of weights an unsigned integer of its size, and the bits of its exponent.
_EXPONENTS = {
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
    "F32": (np.uint32, 0x7F80_0000),
    "F64": (np.uint64, 0x7FF0_0000_0000_0000),
}
_CHUNK_BYTES = 1 << 24
_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
"""By the names of safetensors."""
_FLOATS = frozenset({*_DTYPES, *(f"torch.{name}" for name in _DTYPES.values())})
# The names that TensorFlow's checkpoints and the first conversions of BERT have for the parts of a
# normalisation.
_RENAMED = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


@dataclass(frozen=True)
class _Module:
    """An entry of modules.json. A folder is a plain name: it must not lead out of the
    checkpoint's.
    """

    type: str
    path: Annotated[str, Field(pattern=r"^(\w[\w.-]*)?$")] = ""


@dataclass(frozen=True)
class _Index:
    """The index of weights in several files. A file is a plain name: it must not lead out of the
    folder.
    """

    weight_map: dict[str, Annotated[str, Field(pattern=r"^\w[\w.-]*$")]]


@dataclass(frozen=True)
class _Prompts:
    """The prompts of a sentence-transformers model, by name."""

    prompts: dict[str, str | None] = field(default_factory=dict)
    default_prompt_name: str | None = None


def read_modules(folder: str) -> tuple[Module, ...]:
    """The modules of a sentence-transformers model; none in a folder without modules.json."""
    path = os.path.join(folder, SENTENCE_TRANSFORMERS)
    return _named_modules(folder, path) if os.path.isfile(path) else ()


def _named_modules(folder: str, path: str) -> tuple[Module, ...]:
    modules = []
    for entry in _read_entries(path):
        config = os.path.join(folder, entry.path, CONFIG)
        if not entry.type.startswith("sentence_transformers."):
            raise PreflightError(
                f"{folder} has the module {entry.type!r:.100} ({SENTENCE_TRANSFORMERS}), code of "
                f"its own, which is never run: without it scores would be others. {ELSEWHERE}"
            )
        modules.append(
            Module(
                entry.type.rpartition(".")[2],
                entry.path,
                read_json(dict[str, Any], config) if os.path.isfile(config) else {},
            )
        )
    if modules and modules[0].folder:
        raise PreflightError(
            f"{path} has its first module in the folder {modules[0].folder!r:.100}: only a model "
            "beside it is read. Move that folder's files there, and set its path to nothing"
        )
    return tuple(modules)


def module_folders(url: str) -> tuple[str, ...]:
    """The folders of the modules after the first, as the modules.json at a URL names them."""
    return tuple(entry.path for entry in _read_entries(url)[1:] if entry.path)


def _read_entries(url: str) -> list[_Module]:
    return read_json(list[_Module], url)


def default_prompt(folder: str) -> str:
    """The text that sentence-transformers puts before the inputs of a model, or nothing."""
    path = os.path.join(folder, PROMPTS)
    if not os.path.isfile(path):
        return ""
    prompts = read_json(_Prompts, path)
    name = prompts.default_prompt_name
    if name is not None and name not in prompts.prompts:
        raise PreflightError(
            f"{path} has the default_prompt_name {name!r:.100} and no such prompt: add it to "
            "`prompts`, or set the name to null"
        )
    return prompts.prompts.get(name or "") or ""


def weighted_modules(modules: Sequence[Module]) -> tuple[Module, ...]:
    """The modules below the first that have weights of their own."""
    return tuple(module for module in modules[1:] if module.kind in ("Dense", "LayerNorm"))


def digest_files(folder: str, names: Sequence[str] | None = None) -> tuple[DigestedFile, ...]:
    """The digest of each file of a folder: of those named, or of configuration, tokenizer, weights
    and modules.
    """
    read = (
        (CONFIG, *TOKENIZER_FILES, *weight_files(folder), *_module_files(folder))
        if names is None
        else names
    )
    paths = [os.path.join(folder, name) for name in read]
    return tuple(digest_file(path) for path in paths if os.path.exists(path))


def _module_files(folder: str) -> tuple[str, ...]:
    """The files of the modules after the Transformer, which decide a score."""
    modules = read_modules(folder)
    if len(modules) < 2:
        return ()
    weights = [
        os.path.join(module.folder, name)
        for module in weighted_modules(modules)
        for name in weight_files(os.path.join(folder, module.folder))
    ]
    return (
        SENTENCE_TRANSFORMERS,
        *(os.path.join(module.folder, CONFIG) for module in modules[1:]),
        *weights,
    )


def digest_of(files: Sequence[DigestedFile], folder: str) -> str:
    """One SHA-256 over the names and contents of some files of a folder."""
    return digest({os.path.relpath(file.url, folder): file.sha256 for file in files})


def read_json(kind: type[_Value], path: str) -> _Value:
    """`read_usable` for a small file."""
    return read_usable(kind, path, _MOST_JSON_BYTES)


def read_config(folder: str, reference: str) -> dict[str, Any]:
    """The config.json of a checkpoint."""
    try:
        return read_json(dict[str, Any], os.path.join(folder, CONFIG))
    except FileNotFoundError as error:
        refuse_adapter(folder)
        raise PreflightError(
            f"the checkpoint {reference} has no {CONFIG}: it is not in Hugging Face's format. "
            "`beamrank convert` makes such a folder of a TensorFlow checkpoint "
            "(docs/reference/checkpoints.md)"
        ) from error


def refuse_adapter(folder: str) -> None:
    """Raises PreflightError for the folder of an adapter: transformers would load it onto weights
    that lie there.
    """
    if os.path.isfile(os.path.join(folder, ADAPTER)):
        raise PreflightError(
            f"{folder} holds an adapter of PEFT, such as LoRA ({ADAPTER}): it changes a base "
            "model and gives no scores on its own. Merge it into its base model, and give that "
            "folder: PeftModel.from_pretrained(BASE, "
            "ADAPTER).merge_and_unload().save_pretrained(FOLDER), and the tokenizer"
        )


def first_format(names: Collection[str]) -> str | None:
    """The weights that are read where these files exist; None without any."""
    return next((name for name in WEIGHTS if name in names), None)


def weight_files(folder: str) -> tuple[str, ...]:
    """The names of the files that a folder's weights are read from, their index first if they have
    one.
    """
    refuse_adapter(folder)
    name = first_format([name for name in WEIGHTS if os.path.isfile(os.path.join(folder, name))])
    if name is None:
        raise PreflightError(
            f"there are no weights in {folder}: neither {SAFETENSORS} nor {PICKLED}, whole or "
            "with an index; no other format is read",
            kind="no-weights",
            file=folder,
        )
    return (name, *_parts(folder, name)) if name.endswith(_INDEX) else (name,)


def _parts(folder: str, name: str) -> list[str]:
    """The files that an index of weights names."""
    parts = sorted(set(_read_index(folder, name).values()))
    missing = [part for part in parts if not os.path.isfile(os.path.join(folder, part))]
    if missing or not parts:
        what = (
            f"lacks {', '.join(missing[:3])}, which {name} names"
            if missing
            else f"has a {name} without tensors"
        )
        raise PreflightError(
            f"{folder} {what}: weights in several files need them all. Copy the folder again"
        )
    return parts


def _read_index(folder: str, name: str) -> dict[str, str]:
    """The file of each tensor."""
    return read_json(_Index, os.path.join(folder, name)).weight_map


def tensor_shapes(folder: str, reference: str) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a folder's weights, by the headers of the files."""
    shapes: dict[str, tuple[int, ...]] = {}
    index, *parts = weight_files(folder)
    for name in parts or [index]:
        path = os.path.join(folder, name)
        for stored, shape in _file_shapes(path, reference).items():
            tensor = _current_name(stored)
            if tensor in shapes:
                raise PreflightError(
                    f"the weights of the checkpoint {reference} hold {tensor} twice: again in "
                    f"{path}"
                )
            shapes[tensor] = shape
    missing = [
        name
        for name in (_read_index(folder, index) if parts else ())
        if _current_name(name) not in shapes
    ]
    if missing:
        raise PreflightError(
            f"{os.path.join(folder, index)} names {missing[0]}, which is not in its file: it "
            "belongs to other files. Copy the folder again"
        )
    return shapes


def tensor_reader(folder: str) -> "Callable[[str], StoredTensor]":
    """A function that reads a tensor of a folder's weights by its name in `tensor_shapes`."""
    tensors: dict[str, StoredTensor] = {}
    index, *parts = weight_files(folder)
    for name in parts or [index]:
        path = os.path.join(folder, name)
        read = _map_tensors(path) if path.endswith(".safetensors") else _unpickle(path)
        tensors |= {_current_name(stored): tensor for stored, tensor in read.items()}
    return tensors.__getitem__


class StoredTensor(NamedTuple):
    """A tensor of a file: its type as safetensors names it, its shape, and its bytes.

    Whether it is finite is known without torch, which a launcher does not load.
    """

    kind: str
    shape: Sequence[int]
    data: npt.NDArray[np.uint8]

    def is_finite(self) -> bool:
        """Whether no number is NaN or infinite: in these, all bits of the exponent are 1."""
        unsigned, exponent = _EXPONENTS[self.kind]
        chunks = range(0, len(self.data), _CHUNK_BYTES)
        numbers = (self.data[start : start + _CHUNK_BYTES].view(unsigned) for start in chunks)
        return not any(((number & exponent) == exponent).any() for number in numbers)

    def tensor(self) -> "torch.Tensor":
        """The same for torch, in its type."""
        import torch

        numbers = torch.from_numpy(self.data).view(getattr(torch, _DTYPES[self.kind]))
        return numbers.view(list(self.shape))


def _map_tensors(path: str) -> dict[str, StoredTensor]:
    """The weights of a safetensors file, mapped into memory: the library's own reader leaks 64
    bytes a tensor.
    """
    data = np.memmap(path, mode="c")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    return {
        name: StoredTensor(entry["dtype"], entry["shape"], data[start + first : start + end])
        for name, entry in parse_json(data[8:start].tobytes()).items()
        if name != "__metadata__" and entry["dtype"] in _DTYPES
        for first, end in [entry["data_offsets"]]
    }


def _unpickle(path: str) -> dict[str, StoredTensor]:
    import torch

    kinds = {getattr(torch, name): kind for kind, name in _DTYPES.items()}
    return {
        name: StoredTensor(
            kinds[tensor.dtype],
            tensor.shape,
            tensor.contiguous().flatten().view(torch.uint8).numpy(),
        )
        for name, tensor in torch.load(path, map_location="cpu", weights_only=True).items()
        if tensor.dtype in kinds
    }


def _current_name(name: str) -> str:
    for old, new in _RENAMED:
        name = name.replace(old, new)
    return name


def _file_shapes(path: str, reference: str) -> dict[str, tuple[int, ...]]:
    try:
        if path.endswith(".safetensors"):
            with safe_open(path, framework="numpy") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                types = {name: tensor.get_dtype() for name, tensor in slices.items()}
                shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
        else:
            import torch

            tensors = torch.load(path, map_location="meta", weights_only=True)
            types = {name: str(tensor.dtype) for name, tensor in tensors.items()}
            shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        # Quantized weights mean nothing without their scales; positions may be integers.
        for name, kind in types.items():
            if kind not in _FLOATS and not name.endswith("_ids"):
                raise ValueError(
                    f"{name} is of type {kind}, and weights must be float16, bfloat16, float32 or "
                    "float64"
                )
        return shapes
    # An unpickler raises errors of any type on broken bytes.
    except Exception as error:
        raise PreflightError(
            f"the weights of the checkpoint {reference} cannot be read from {path}: {error}. Only "
            "plain tensors are",
            kind="damaged",
            file=path,
        ) from error


_Options = dict[str, Any]
_TOKENIZER, _LENGTH = "tokenizer_config.json", "model_max_length"
# Keys of loading, of training and generation, of the side of padding, and keys that have a check of
# their own. Every kind of dropout is one more.
_CHANGES_NOTHING = (
    *("torch_dtype", "dtype", "attn_implementation", "device_map", "low_cpu_mem_usage"),
    *("use_cache", "trust_remote_code", "use_fast", "reference_compile", "problem_type"),
    *("padding_side", "clean_up_tokenization_spaces", _LENGTH, "do_lower_case", "num_labels"),
)
_CALL_CHANGES_NOTHING = {"padding", "pad_to_multiple_of", "return_tensors", "max_length"}
_CALL_CHANGES_NOTHING |= {"logits_to_keep"}
_USUAL_CALL = {"truncation": (True, "longest_first"), "add_special_tokens": (True,)}
_OUTPUTS = ("logits", "last_hidden_state", ["logits"], ["last_hidden_state"])


@dataclass(frozen=True)
class Settings:
    """sentence_bert_config.json. Texts of a re-ranker have no task, as the last keys need."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    max_seq_length: int | None = None
    do_lower_case: StrictBool = False
    tokenizer_name_or_path: str | None = None
    model_kwargs: Annotated[
        _Options, Field(validation_alias=AliasChoices("model_args", "model_kwargs"))
    ] = field(default_factory=dict)
    processor_kwargs: Annotated[
        _Options, Field(validation_alias=AliasChoices("tokenizer_args", "processor_kwargs"))
    ] = field(default_factory=dict)
    config_kwargs: Annotated[
        _Options, Field(validation_alias=AliasChoices("config_args", "config_kwargs"))
    ] = field(default_factory=dict)
    processing_kwargs: dict[str, _Options] = field(default_factory=dict)
    modality_config: dict[str, _Options] = field(default_factory=dict)
    transformer_task: str | None = None
    module_output_name: str | None = None
    unpad_inputs: bool | None = None
    query_length: int | None = None
    document_length: int | None = None
    query_expansion: _Options | None = None

    @property
    def call(self) -> _Options:
        """The arguments with which the tokenizer is called on texts."""
        return {
            **self.processing_kwargs.get("text", {}),
            **self.processing_kwargs.get("common", {}),
        }


class SavedLength(NamedTuple):
    """The most tokens of an input in sentence-transformers, the file that says so, and whether it
    was meant for this: the tokenizer's own is often the number of the encoder's positions.
    """

    tokens: float
    source: str
    is_own: bool = False


def read_settings(folder: str) -> Settings:
    """The settings; the usual ones where sentence-transformers reads no others."""
    files = [os.path.join(folder, name) for name in (SENTENCE_TRANSFORMERS, TRANSFORMER)]
    return read_json(Settings, files[1]) if all(map(os.path.isfile, files)) else Settings()


def check_settings(
    settings: Settings, folder: str, reference: str, config: Mapping[str, Any]
) -> None:
    """Raises PreflightError where sentence-transformers makes another model or other inputs of a
    checkpoint than its config.json and its tokenizer's files say.
    """
    if settings == Settings():
        return
    for setting, advice in _differences(settings, folder, config):
        raise PreflightError(
            f"{TRANSFORMER} of the checkpoint {reference} has {setting}, with which "
            f"sentence-transformers scores otherwise than beamrank: {advice}"
        )


def _differences(
    settings: Settings, folder: str, config: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The settings that change scores, and what to do about each."""
    tokenizer: _Options = {}
    if settings.processor_kwargs:
        files = TokenizerFiles(folder)
        tokenizer = {**files.settings(), "truncation_side": "left" if files.keeps_ends else "right"}
    written = "write it into {}, if the model was trained so"
    for options, known, advice in (
        (settings.config_kwargs, config, written.format(CONFIG)),
        (settings.processor_kwargs, tokenizer, written.format(_TOKENIZER)),
        (settings.model_kwargs, {}, "save the model without it"),
    ):
        for key, value in options.items():
            is_same = key in known and known[key] == value
            if not (is_same or key in _CHANGES_NOTHING or "dropout" in key):
                yield f"{key} {value!r:.50}", advice
    for key, value in settings.call.items():
        if key not in _CALL_CHANGES_NOTHING and value not in _USUAL_CALL.get(key, ()):
            yield f"{key} {value!r:.50}", "its tokenizer is called otherwise"
    if settings.tokenizer_name_or_path is not None:
        yield f"the tokenizer of {settings.tokenizer_name_or_path!r:.100}", "add it to the folder"
    text = {"method": "forward", "method_output_name": "logits"}
    text |= settings.modality_config.get("text", {})
    if text["method"] != "forward" or text["method_output_name"] not in _OUTPUTS:
        yield f"the modality_config {text!r:.100}", "only the last layer's output can be scored"


def check_case(folder: str, reference: str, tokenizer: Tokenizer) -> None:
    """Raises PreflightError where sentence-transformers writes texts in lower case and the
    tokenizer does not, or the other way round.
    """
    settings = read_settings(folder)
    lowers = settings.processor_kwargs.get("do_lower_case", settings.do_lower_case or None)
    text = "The Quick BROWN Fox É"
    upper, lower = tokenizer.encode([text, text.lower()], 512).ids.to_pylist()
    if lowers not in (None, upper == lower):
        raise PreflightError(
            f"the checkpoint {reference} has do_lower_case {lowers!r:.50} in {TRANSFORMER}, and "
            f"its tokenizer {'removes' if upper == lower else 'keeps'} capitals: its scores would "
            "be others. Give tokenizer.json a normalizer that does as the setting (Lowercase)"
        )


def saved_length(folder: str) -> SavedLength | None:
    """The length for which a checkpoint was saved."""
    settings = read_settings(folder)
    by_key = {
        "processing_kwargs": settings.call.get("max_length"),
        "processor_kwargs": settings.processor_kwargs.get(_LENGTH),
        "max_seq_length": settings.max_seq_length,
    }
    for key, tokens in by_key.items():
        if isinstance(tokens, int):
            return SavedLength(tokens, f"{key} in {TRANSFORMER}", is_own=True)
    tokens = TokenizerFiles(folder).config.model_max_length
    return None if tokens is None else SavedLength(tokens, f"{_LENGTH} in {_TOKENIZER}")

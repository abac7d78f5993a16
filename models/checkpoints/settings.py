"""What sentence-transformers reads beside a model: sentence_bert_config.json.

Each of its keys is followed, changes no score, or is refused.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import AliasChoices, ConfigDict, Field, StrictBool

from beamrank.errors import PreflightError
from models.checkpoints.files import CONFIG, SENTENCE_TRANSFORMERS, TRANSFORMER, read_json
from models.tokenizers.base import Tokenizer
from models.tokenizers.files import TokenizerFiles

_Options = dict[str, Any]
_TOKENIZER, _LENGTH = "tokenizer_config.json", "model_max_length"
# How a model is loaded, what only training or generation needs, the side of padding, and keys that
# are checked by themselves. Every kind of dropout is one more.
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
    """The most tokens of an input in sentence-transformers, what says so, and whether that was
    meant for this: the tokenizer's own is often that of the encoder's positions.
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

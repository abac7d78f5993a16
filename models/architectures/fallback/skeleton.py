"""What a configuration says of a model of transformers, found on the model without memory for its weights."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from beamrank.errors import PreflightError
from models.architectures.classifier import check_tensors
from models.architectures.fallback.tasks import Task
from models.architectures.protocol import ModelFiles

_MOST_LAYERS = 1000
# Keys that name other code for a part of the model, or another format of its weights.
_REFUSED_KEYS = ("attn_implementation", "experts_implementation", "quantization_config", "auto_map")


def make_skeleton(files: ModelFiles, task: Task) -> Any:
    """The model of transformers that config.json describes, on the device `meta`.

    Raises:
        PreflightError: transformers cannot build the model or run it on text, or only with other code than its own.
    """
    import torch

    from models.architectures.fallback.model import make_model, read_config

    reference = files.reference
    for key in _keys(files.config):
        if any(key.endswith(refused) for refused in _REFUSED_KEYS):
            raise PreflightError(
                f"config.json of the checkpoint {reference} has the key {key!r:.100}: other code and quantized "
                "weights are not supported. Save the model without it"
            )
    try:
        config = read_config(files.config)
        layers = getattr(config, "num_hidden_layers", 0)
        if not 0 <= layers <= _MOST_LAYERS:
            raise ValueError(f"{layers} layers")
        if ropes := _growing_ropes(getattr(config, "rope_parameters", None)):
            raise ValueError(f"rotary positions of type {ropes[0]!r} depend on inputs that were scored before")
        with torch.device("meta"):
            model = make_model(config, task)
            _try_out(model, task)
    # transformers checks a configuration in parts, with errors of any type.
    except Exception as error:
        raise PreflightError(
            f"config.json of the checkpoint {reference} cannot be used: transformers cannot run its model on text: "
            f"{type(error).__name__}: {error!s:.400}"
        ) from error
    return model


def _growing_ropes(parameters: object) -> list[str]:
    """The kinds of rotary positions that transformers adapts to the longest input so far."""
    if not isinstance(parameters, dict):
        return []
    nested = [kind for each in parameters.values() for kind in _growing_ropes(each)]
    return [kind for kind in (parameters.get("rope_type"), *nested) if kind in ("dynamic", "longrope")]


def _try_out(model: Any, task: Task) -> None:
    """Runs the model on ids alone, which all models here read. Raises an error of any type where it needs more."""
    import torch

    model.get_input_embeddings().num_embeddings  # noqa: B018
    ids = torch.zeros(1, 4, dtype=torch.long)
    try:
        with torch.inference_mode():
            model(input_ids=ids, **({"decoder_input_ids": ids} if task == "seq2seq" else {}))
    except RuntimeError as error:
        # torch's error for a tensor without values: what depends on values cannot be tried here.
        if "meta" not in str(error).lower():
            raise


def checked_tensors(skeleton: Any, files: ModelFiles) -> dict[str, tuple[int, ...]]:
    """The tensors of the model under the names of its files, all of which the checkpoint has.

    Raises:
        PreflightError: one is missing or has another shape.
    """
    from transformers.core_model_loading import revert_weight_conversion

    saved = skeleton.state_dict()
    every = chain(skeleton.named_parameters(), skeleton.named_buffers())
    kept = {name: each for name, each in every if name in saved and each.is_floating_point()}
    tensors = {name: tuple(each.shape) for name, each in revert_weight_conversion(skeleton, kept).items()}
    check_tensors(files, tensors)
    return tensors


def count_products(skeleton: Any) -> int:
    """The number of multiplications for one token."""
    import torch

    return sum(module.weight.numel() for module in skeleton.modules() if isinstance(module, torch.nn.Linear))


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _keys(each)

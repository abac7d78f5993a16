"""The re-rankers of BERT's own TensorFlow code, dl4marco-bert's and duobert's, and transformers' names for their parts.

`run_msmarco.py` and `run_duobert_msmarco.py` put one linear layer (`output_weights`, `output_bias`: logit 0 is not
relevant, logit 1 relevant) on the pooled output of Google's `modeling.BertModel`.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS
from beamrank.storage.documents import parse_json, read_at_most
from models.architectures.bert import CLASSIFIER, TOKEN_TYPES, bert_tensors, missing_types, read_shape
from models.architectures.encoder.shape import EncoderShape, Layers, Size
from models.architectures.protocol import Shapes

_HEAD = {f"{CLASSIFIER}.weight": "output_weights", f"{CLASSIFIER}.bias": "output_bias"}
_TYPES = "bert/embeddings/token_type_embeddings"
_UNUSED = re.compile(r"global_step|.*/adam_[mv]")
_SHOWN = 3
_MOST_JSON_BYTES = 1 << 20

Weights = dict[str, NDArray[np.float32]]


class OriginalConfig(BaseModel):
    """bert_config.json, with the defaults of Google's `BertConfig`; transformers has the same names."""

    model_config = ConfigDict(allow_inf_nan=False)

    vocab_size: Size
    hidden_size: Size = 768
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 16
    initializer_range: float = 0.02


def read_config(path: str) -> OriginalConfig:
    """Reads bert_config.json.

    Raises:
        PreflightError: it is missing or invalid.
    """
    try:
        return OriginalConfig.model_validate(parse_json(read_at_most(path, _MOST_JSON_BYTES)))
    except OSError as error:
        raise PreflightError(
            f"cannot read {path}: {error.strerror}. Give the bert_config.json that the checkpoint was trained with: "
            "--config"
        ) from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise PreflightError(f"{path} is not a configuration of BERT: {wrong}") from error
    except ValueError as error:
        raise PreflightError(f"{path} is not valid JSON: {error}") from error


def tensorflow_name(name: str) -> str:
    """The variable that holds a tensor of transformers' BertForSequenceClassification."""
    if name in _HEAD:
        return _HEAD[name]
    path, _, last = name.rpartition(".")
    if path.endswith("LayerNorm"):
        last = {"weight": "gamma", "bias": "beta"}[last]
    elif path.endswith("_embeddings"):
        return path.replace(".", "/")
    elif last == "weight":
        last = "kernel"
    return re.sub(r"layer\.(\d+)", r"layer_\1", path).replace(".", "/") + f"/{last}"


def check_variables(
    found: Shapes, config: OriginalConfig, kind: str, source: str
) -> tuple[EncoderShape, tuple[str, ...]]:
    """Checks that the variables are those of a classifier that ranks, with none missing and no others.

    Args:
        found: the checkpoint's variables; Adam's slots and the step may be among them.
        config: bert_config.json.
        kind: `mono` or `duo`.
        source: names the checkpoint in errors.

    Returns:
        The sizes, with as many token types as the checkpoint has, and warnings.

    Raises:
        PreflightError: a variable is missing, unexpected, or has another shape than in config.
    """
    shape = read_shape(config.model_dump(), next(iter(found.get(_TYPES, ())), 0), source)
    expected = {tensorflow_name(name): _stored(name, size) for name, size in bert_tensors(shape, labels=2).items()}
    _check_names(found, expected, source)
    for name, size in expected.items():
        if found[name] != size:
            raise PreflightError(
                f"the checkpoint {source}: {name} is {found[name]}, and a BERT re-ranker with this bert_config.json "
                f"has {size}. Give the bert_config.json that it was trained with: --config"
            )
    return shape, _check_token_types(shape.token_types or 0, config, kind, source)


def read_weights(read: Callable[[str], NDArray[Any]], shape: EncoderShape, kind: str) -> tuple[Weights, EncoderShape]:
    """The tensors of BertForSequenceClassification, and its sizes: a table of two token types has three for duo.

    TensorFlow looks token types up by a product with a one-hot vector, and that of type 2 is all zeros where the table
    has two rows. So the third row is zeros, as such a model was trained and run.
    """
    weights = {
        name: np.ascontiguousarray(_turned(name, read(tensorflow_name(name))), dtype=np.float32)
        for name in bert_tensors(shape, labels=2)
    }
    table = weights[TOKEN_TYPES]
    missing_rows = max(0, SEGMENTS[kind] - len(table))
    weights[TOKEN_TYPES] = np.concatenate([table, np.zeros((missing_rows, shape.hidden), np.float32)])
    return weights, replace(shape, token_types=len(weights[TOKEN_TYPES]))


def unused(names: Collection[str]) -> list[str]:
    """Variables that only training needs: Adam's slots, and the step."""
    return [name for name in names if _UNUSED.fullmatch(name)]


def _is_kernel(name: str) -> bool:
    return tensorflow_name(name).endswith("/kernel")


def _stored(name: str, size: tuple[int, ...]) -> tuple[int, ...]:
    """TensorFlow's kernels are [in, out], transformers' [out, in]."""
    return size[::-1] if _is_kernel(name) else size


def _turned(name: str, values: NDArray[Any]) -> NDArray[Any]:
    return values.T if _is_kernel(name) else values


def _check_names(found: Shapes, expected: Shapes, source: str) -> None:
    missing = [name for name in expected if name not in found]
    if not any(name.startswith("bert/") for name in found):
        raise PreflightError(
            f"the checkpoint {source} is not BERT's: none of its {len(found)} variables begins with bert/: "
            f"{_some(found)}"
        )
    if set(missing) & set(_HEAD.values()):
        raise PreflightError(
            f"the checkpoint {source} has no {' and no '.join(_HEAD.values())}: it is an encoder that was pre-trained "
            "and not fine-tuned to rank, and gives no scores. Fine-tune it first"
        )
    if missing:
        raise PreflightError(
            f"the checkpoint {source} lacks {len(missing)} of the {len(expected)} variables that its bert_config.json "
            f"calls for: {_some(missing)}. Give the bert_config.json that it was trained with: --config"
        )
    extra = [name for name in found if name not in expected and not _UNUSED.fullmatch(name)]
    if extra:
        raise PreflightError(
            f"the checkpoint {source} has {len(extra)} variables that a BERT re-ranker with this bert_config.json does "
            f"not have: {_some(extra)}. Its scores may depend on them. Give the bert_config.json that it was trained "
            "with (--config); if it is that one, this is another model, which cannot be converted"
        )


def _check_token_types(rows: int, config: OriginalConfig, kind: str, source: str) -> tuple[str, ...]:
    missing = missing_types(rows, SEGMENTS[kind], f"the checkpoint {source}")
    if rows != config.type_vocab_size:
        note = f"bert_config.json has {config.type_vocab_size} token types and {_TYPES} {rows} rows: using the rows"
        return (note, *missing)
    return missing


def _some(names: Collection[str]) -> str:
    shown = list(names)[:_SHOWN]
    return ", ".join(shown) + (" ..." if len(names) > len(shown) else "")

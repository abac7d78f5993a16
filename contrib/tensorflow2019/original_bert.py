"""The models of BERT's own TensorFlow code, and transformers' names for their parts.

`run_pretraining.py` puts the heads of a masked language model (`cls/predictions`) and of next
sentences (`cls/seq_relationship`) on Google's `modeling.BertModel`. `run_msmarco.py` of
dl4marco-bert and `run_duobert_msmarco.py` of duobert put one linear layer on its pooled output
(`output_weights`, `output_bias`: logit 0 is not relevant, logit 1 relevant).
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import TEXT_COUNTS
from beamrank.storage.documents import read_usable
from models.architectures.encoder.family import check_types
from models.architectures.encoder.shape import EncoderShape, Layers, Size
from models.architectures.families import CLASSIFIER, TOKEN_TYPES, bert_shape, bert_tensors
from models.architectures.protocol import ModelFiles, Shapes

PRETRAINED = {"pretraining": "BertForPreTraining", "masked_lm": "BertForMaskedLM"}
NEXT_SENTENCE = "cls/seq_relationship"

_RANKER = {f"{CLASSIFIER}.weight": "output_weights", f"{CLASSIFIER}.bias": "output_bias"}
_PREDICTIONS = "cls/predictions"
_HEADS = {
    **_RANKER,
    "cls.predictions.bias": f"{_PREDICTIONS}/output_bias",
    "cls.seq_relationship.weight": f"{NEXT_SENTENCE}/output_weights",
    "cls.seq_relationship.bias": f"{NEXT_SENTENCE}/output_bias",
}
_TYPES = "bert/embeddings/token_type_embeddings"
# Averages of the weights, which a model may have been measured with.
_AVERAGES = "ExponentialMovingAverage"
_SHOWN = 3
_MOST_JSON_BYTES = 1 << 20

Weights = dict[str, NDArray[np.float32]]


class OriginalConfig(BaseModel):
    """bert_config.json, with the defaults of Google's `BertConfig`; transformers has the same
    names.
    """

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
        return read_usable(OriginalConfig, path, _MOST_JSON_BYTES)
    except OSError as error:
        raise PreflightError(
            f"cannot read {path}: {error.strerror}. Give the bert_config.json that the checkpoint "
            "was trained with: --config"
        ) from error


def tensorflow_name(name: str) -> str:
    """The variable that holds a tensor of transformers' BertForSequenceClassification or
    BertForPreTraining.
    """
    if name in _HEADS:
        return _HEADS[name]
    path, _, last = name.rpartition(".")
    if path.endswith("LayerNorm"):
        last = {"weight": "gamma", "bias": "beta"}[last]
    elif path.endswith("_embeddings"):
        return path.replace(".", "/")
    elif last == "weight":
        last = "kernel"
    return re.sub(r"layer\.(\d+)", r"layer_\1", path).replace(".", "/") + f"/{last}"


def check_variables(
    shapes: Shapes, config: OriginalConfig, kind: str, source: str
) -> tuple[EncoderShape, tuple[str, ...]]:
    """Checks that a model of this kind has exactly these variables.

    An optimizer's and the step may be among them. The kind is `mono`, `duo` or one of `PRETRAINED`;
    `source` names the checkpoint in errors.

    Returns:
        The sizes, with as many token types as the checkpoint has, and warnings.

    Raises:
        PreflightError: a variable is missing, unexpected, or has another shape than in config.
    """
    shape = bert_shape(
        ModelFiles(source, config.model_dump()), next(iter(shapes.get(_TYPES, ())), 0)
    )
    # TensorFlow's kernels are [in, out], transformers' [out, in].
    expected = {
        tensorflow_name(name): size[::-1] if _is_kernel(name) else size
        for name, size in _tensors(shape, kind).items()
    }
    _check_names(shapes, expected, kind, source)
    labels = shapes.get(_RANKER[f"{CLASSIFIER}.bias"], ()) if kind in TEXT_COUNTS else ()
    if labels not in ((), (2,)):
        raise PreflightError(
            f"the checkpoint {source} has {labels[0]} labels, by its output_bias; a re-ranker of "
            "this code has 2: not relevant and relevant. It was trained for another task, and its "
            "scores would order nothing"
        )
    for name, size in expected.items():
        if shapes[name] != size:
            raise PreflightError(
                f"the checkpoint {source}: {name} is {shapes[name]}, and {_model(kind)} with this "
                f"bert_config.json has {size}. Give the bert_config.json that it was trained "
                "with: --config"
            )
    rows = shape.token_types or 0
    texts = tuple(range(TEXT_COUNTS.get(kind, 0)))
    warnings = check_types(f"the checkpoint {source}", rows, texts, adds_type=True) if texts else ()
    if rows != config.type_vocab_size:
        note = (
            f"bert_config.json has {config.type_vocab_size} token types and {_TYPES} {rows} "
            "rows: using the rows"
        )
        warnings = (note, *warnings)
    return shape, warnings


def read_weights(
    read: Callable[[str], NDArray[Any]], shape: EncoderShape, kind: str
) -> tuple[Weights, EncoderShape]:
    """The tensors of a model of this kind in transformers, and its sizes: a table of two token
    types has three for duo.

    TensorFlow looks token types up by a product with a one-hot vector, and type 2's is all zeros
    where the table has two rows. So the third row is zeros, as such a model was trained and run.
    """
    weights = {}
    for name in _tensors(shape, kind):
        values = read(tensorflow_name(name))
        weights[name] = np.ascontiguousarray(
            values.T if _is_kernel(name) else values, dtype=np.float32
        )
    table = weights[TOKEN_TYPES]
    missing_rows = max(0, TEXT_COUNTS.get(kind, 0) - len(table))
    weights[TOKEN_TYPES] = np.concatenate(
        [table, np.zeros((missing_rows, shape.hidden), np.float32)]
    )
    return weights, replace(shape, token_types=len(weights[TOKEN_TYPES]))


def unused(shapes: Shapes) -> list[str]:
    """Variables that only training needs: single numbers (step, loss scale), and an optimizer's
    slots.

    TensorFlow names a slot `VARIABLE/NAME`, such as adam_m, AdamWeightDecayOptimizer_1 or Momentum,
    and gives it the shape of its variable.
    """
    return [
        name
        for name, size in shapes.items()
        for variable, _, slot in (name.rpartition("/"),)
        if size == () or (not slot.startswith(_AVERAGES) and shapes.get(variable) == size)
    ]


def _tensors(shape: EncoderShape, kind: str) -> Shapes:
    """The tensors of a model of this kind in transformers. The decoder of the masked words is the
    word embeddings.
    """
    ranker = bert_tensors(shape, labels=2)
    if kind in TEXT_COUNTS:
        return ranker
    encoder = {name: size for name, size in ranker.items() if name not in _RANKER}
    transform, width = "cls.predictions.transform", (shape.hidden,)
    predictions = {
        f"{transform}.dense.weight": (*width, *width),
        **dict.fromkeys((f"{transform}.dense.bias", f"{transform}.LayerNorm.weight"), width),
        f"{transform}.LayerNorm.bias": width,
        "cls.predictions.bias": (shape.vocab_size,),
    }
    next_sentence = {"cls.seq_relationship.weight": (2, *width), "cls.seq_relationship.bias": (2,)}
    return {**encoder, **predictions, **(next_sentence if kind == "pretraining" else {})}


def _model(kind: str) -> str:
    return "a BERT re-ranker" if kind in TEXT_COUNTS else "a pre-trained BERT"


def _is_kernel(name: str) -> bool:
    return tensorflow_name(name).endswith("/kernel")


def _check_names(shapes: Shapes, expected: Shapes, kind: str, source: str) -> None:
    missing = [name for name in expected if name not in shapes]
    if not any(name.startswith("bert/") for name in shapes):
        raise PreflightError(
            f"the checkpoint {source} is not BERT's: none of its {len(shapes)} variables begins "
            f"with bert/: {_some(shapes)}"
        )
    if set(missing) & set(_RANKER.values()):
        raise PreflightError(
            f"the checkpoint {source} has no {' and no '.join(_RANKER.values())}: it is an "
            "encoder that was pre-trained and not fine-tuned to rank, and gives no scores. "
            "Convert it with `beamrank convert bert`, and fine-tune it with `beamrank train`"
        )
    if kind in PRETRAINED and shapes.keys() & set(_RANKER.values()):
        raise PreflightError(
            f"the checkpoint {source} has {' and '.join(_RANKER.values())}: it was fine-tuned to "
            "rank. Convert it with `beamrank convert mono` or `beamrank convert duo`"
        )
    if missing:
        raise PreflightError(
            f"the checkpoint {source} lacks {len(missing)} of the {len(expected)} variables that "
            f"its bert_config.json calls for: {_some(missing)}. Give the bert_config.json that it "
            "was trained with: --config"
        )
    known = {*expected, *unused(shapes)}
    extra = [name for name in shapes if name not in known]
    if extra:
        raise PreflightError(
            f"the checkpoint {source} has {len(extra)} variables that {_model(kind)} with this "
            f"bert_config.json does not have: {_some(extra)}. Its scores may depend on them. Give "
            "the bert_config.json that it was trained with (--config); if it is that one, this is "
            "another model, which cannot be converted"
        )


def _some(names: Collection[str]) -> str:
    shown = list(names)[:_SHOWN]
    return ", ".join(shown) + (" ..." if len(names) > len(shown) else "")

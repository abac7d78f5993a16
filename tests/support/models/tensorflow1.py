"""A checkpoint of TensorFlow 1's `Saver` with known weights, as run_msmarco.py of dl4marco-bert leaves one.

`python -m tests.support.models.tensorflow1 FOLDER ROWS` writes one with `ROWS` token types, and needs TensorFlow. The
files in tests/support/data/tensorflow1 are what it wrote for 2 with TensorFlow 2.21.0.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests import ROOT

STEP = 7
HIDDEN, INNER, HEADS, LAYERS = 8, 16, 2, 2
CONFIG: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": 24,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": 2,
    "vocab_size": 40,
}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "is", "a", "ranking", "##s", "cafe", "."]
TOKENS += [f"word{number}" for number in range(40 - len(TOKENS))]
TOKEN_TYPES = "bert/embeddings/token_type_embeddings"
LONG_NAMES = [f"{number}{'x' * 1000}" for number in range(600)]
FOLDER = ROOT / "tests/support/data/tensorflow1"

Variables = dict[str, NDArray[np.float32]]


def known_variables(token_types: int = 2) -> Variables:
    """The variables of a BERT classifier by the names that BERT's own code gives them; a kernel is [in, out]."""
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (len(TOKENS), HIDDEN),
        "bert/embeddings/position_embeddings": (24, HIDDEN),
        TOKEN_TYPES: (token_types, HIDDEN),
        **_norm("bert/embeddings"),
    }
    for layer in (f"bert/encoder/layer_{number}" for number in range(LAYERS)):
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", HIDDEN, HIDDEN)
        shapes |= _dense(f"{layer}/attention/output/dense", HIDDEN, HIDDEN) | _norm(f"{layer}/attention/output")
        shapes |= _dense(f"{layer}/intermediate/dense", HIDDEN, INNER)
        shapes |= _dense(f"{layer}/output/dense", INNER, HIDDEN) | _norm(f"{layer}/output")
    shapes |= _dense("bert/pooler/dense", HIDDEN, HIDDEN)
    shapes |= {"output_weights": (2, HIDDEN), "output_bias": (2,)}
    # RandomState's streams never change.
    random = np.random.RandomState(2019)
    return {name: random.uniform(-1.5, 1.5, shape).astype(np.float32) for name, shape in shapes.items()}


def copy_checkpoint(folder: Path) -> str:
    """The files that TensorFlow wrote, with bert_config.json and vocab.txt beside them; their prefix."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    return str(folder / f"model.ckpt-{STEP}")


def logits(
    variables: Mapping[str, NDArray[np.float32]], ids: Sequence[int], types: Sequence[int]
) -> NDArray[np.float64]:
    """What Google's `modeling.BertModel` and the head of run_msmarco.py compute of one input: float64[2]."""
    from scipy.special import erf

    w = {name: values.astype(np.float64) for name, values in variables.items()}
    table = w[TOKEN_TYPES]
    # tf.one_hot(2, depth=2) is all zeros.
    one_hot = np.array([[float(row == token_type) for row in range(len(table))] for token_type in types])
    hidden = w["bert/embeddings/word_embeddings"][list(ids)] + one_hot @ table
    hidden = _normalize(w, "bert/embeddings", hidden + w["bert/embeddings/position_embeddings"][: len(ids)])
    for layer in (f"bert/encoder/layer_{number}" for number in range(LAYERS)):
        query, key, value = (
            _apply(w, f"{layer}/attention/self/{part}", hidden).reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        weights = np.exp(query @ key.transpose(0, 2, 1) / np.sqrt(HIDDEN // HEADS))
        context = (weights / weights.sum(axis=2, keepdims=True)) @ value
        attended = _apply(w, f"{layer}/attention/output/dense", context.transpose(1, 0, 2).reshape(len(ids), HIDDEN))
        hidden = _normalize(w, f"{layer}/attention/output", attended + hidden)
        inner = _apply(w, f"{layer}/intermediate/dense", hidden)
        inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
        hidden = _normalize(w, f"{layer}/output", _apply(w, f"{layer}/output/dense", inner) + hidden)
    pooled = np.tanh(_apply(w, "bert/pooler/dense", hidden[0]))
    return np.asarray(pooled @ w["output_weights"].T + w["output_bias"])


def write(folder: Path, token_types: int) -> None:
    """Trains nothing, but saves as the original does: Adam's slots and the step too, and one data file a device."""
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    tf.disable_resource_variables()
    for number, (name, values) in enumerate(known_variables(token_types).items()):
        with tf.device(f"/cpu:{number % 2}"):
            for slot, factor in (("", 1.0), ("/adam_m", 0.0), ("/adam_v", 2.0)):
                tf.get_variable(name + slot, initializer=values * np.float32(factor))
    tf.train.get_or_create_global_step()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.assign(tf.train.get_global_step(), STEP))
        tf.train.Saver(sharded=True).save(session, str(folder / "model.ckpt"), STEP)
        # An index of more than one block (of 256 KiB), and a variable of which a slice is stored.
        for name, names, part in (("long", LONG_NAMES, ""), ("sliced", ["bert/sliced"], "4 8 0,2:0,8")):
            tensors = [np.full((2, 8), number, np.float32) for number in range(len(names))]
            session.run(
                tf.raw_ops.SaveV2(
                    prefix=str(folder / name), tensor_names=names, shape_and_slices=[part] * len(names), tensors=tensors
                )
            )


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/LayerNorm/{part}": (HIDDEN,) for part in ("beta", "gamma")}


def _apply(w: Mapping[str, NDArray[np.float64]], name: str, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(hidden @ w[f"{name}/kernel"] + w[f"{name}/bias"])


def _normalize(w: Mapping[str, NDArray[np.float64]], name: str, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
    return np.asarray(scaled * w[f"{name}/LayerNorm/gamma"] + w[f"{name}/LayerNorm/beta"])


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))

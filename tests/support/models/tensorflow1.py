"""Checkpoints of TensorFlow 1's `Saver` with known weights, as run_msmarco.py and
run_pretraining.py leave them.

`python -m tests.support.models.tensorflow1 FOLDER ROWS` writes a re-ranker with `ROWS` token types,
and needs TensorFlow; `FOLDER pretrained` writes a pre-trained BERT, and what TensorFlow computes
with it. The files in tests/support/data/tensorflow1 and tensorflow1_pretrained are what it wrote
with TensorFlow 2.21.0.
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
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "what",
    "is",
    "a",
    "ranking",
    "##s",
    "cafe",
    ".",
]
TOKENS += [f"word{number}" for number in range(40 - len(TOKENS))]
TOKEN_TYPES = "bert/embeddings/token_type_embeddings"
LONG_NAMES = [f"{number}{'x' * 1000}" for number in range(600)]
FOLDER = ROOT / "tests/support/data/tensorflow1"
PRETRAINED_FOLDER = ROOT / "tests/support/data/tensorflow1_pretrained"
PRETRAINED = "bert_model.ckpt"
OUTPUTS = "outputs.npz"
# One input of a pre-trained BERT: [CLS] a [MASK] b [SEP] c d [SEP].
IDS, TYPES = (2, 5, 4, 7, 3, 20, 39, 3), (0, 0, 0, 0, 0, 1, 1, 1)

Variables = dict[str, NDArray[np.float32]]


def known_variables(token_types: int = 2) -> Variables:
    """The variables of a BERT classifier by the names that BERT's own code gives them; a kernel is
    [in, out].
    """
    return _drawn(
        _encoder_shapes(token_types) | {"output_weights": (2, HIDDEN), "output_bias": (2,)}
    )


def pretrained_variables() -> Variables:
    """The variables of a pre-trained BERT, with the heads of masked words and next sentences."""
    transform = "cls/predictions/transform"
    heads = {
        **_dense(f"{transform}/dense", HIDDEN, HIDDEN),
        **_norm(transform),
        "cls/predictions/output_bias": (len(TOKENS),),
        "cls/seq_relationship/output_weights": (2, HIDDEN),
        "cls/seq_relationship/output_bias": (2,),
    }
    return _drawn(_encoder_shapes(2) | heads)


def _encoder_shapes(token_types: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (len(TOKENS), HIDDEN),
        "bert/embeddings/position_embeddings": (24, HIDDEN),
        TOKEN_TYPES: (token_types, HIDDEN),
        **_norm("bert/embeddings"),
    }
    for layer in (f"bert/encoder/layer_{number}" for number in range(LAYERS)):
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", HIDDEN, HIDDEN)
        shapes |= _dense(f"{layer}/attention/output/dense", HIDDEN, HIDDEN) | _norm(
            f"{layer}/attention/output"
        )
        shapes |= _dense(f"{layer}/intermediate/dense", HIDDEN, INNER)
        shapes |= _dense(f"{layer}/output/dense", INNER, HIDDEN) | _norm(f"{layer}/output")
    return shapes | _dense("bert/pooler/dense", HIDDEN, HIDDEN)


def _drawn(shapes: Mapping[str, tuple[int, ...]]) -> Variables:
    # RandomState's streams never change.
    random = np.random.RandomState(2019)
    return {
        name: random.uniform(-1.5, 1.5, shape).astype(np.float32) for name, shape in shapes.items()
    }


def copy_checkpoint(folder: Path) -> str:
    """The files of a re-ranker that TensorFlow wrote, with bert_config.json and vocab.txt beside
    them; their prefix.
    """
    return _copy(FOLDER, folder, f"model.ckpt-{STEP}")


def copy_pretrained(folder: Path) -> str:
    """The same for a pre-trained BERT."""
    return _copy(PRETRAINED_FOLDER, folder, PRETRAINED)


def _copy(source: Path, folder: Path, prefix: str) -> str:
    shutil.copytree(source, folder, dirs_exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    return str(folder / prefix)


def logits(
    variables: Mapping[str, NDArray[np.float32]], ids: Sequence[int], types: Sequence[int]
) -> NDArray[np.float64]:
    """What Google's `modeling.BertModel` and the head of run_msmarco.py compute of one input:
    float64[2].
    """
    w = {name: values.astype(np.float64) for name, values in variables.items()}
    pooled = np.tanh(_apply(w, "bert/pooler/dense", _encoded(w, ids, types)[0]))
    return np.asarray(pooled @ w["output_weights"].T + w["output_bias"])


def pretrained_outputs(ids: Sequence[int], types: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """What run_pretraining.py's model computes of one input: hidden states, logits of every word,
    of next sentence.
    """
    w = {name: values.astype(np.float64) for name, values in pretrained_variables().items()}
    hidden = _encoded(w, ids, types)
    pooled = np.tanh(_apply(w, "bert/pooler/dense", hidden[0]))
    transform = "cls/predictions/transform"
    transformed = _normalize(w, transform, _gelu(_apply(w, f"{transform}/dense", hidden)))
    words = transformed @ w["bert/embeddings/word_embeddings"].T + w["cls/predictions/output_bias"]
    next_sentence = (
        pooled @ w["cls/seq_relationship/output_weights"].T + w["cls/seq_relationship/output_bias"]
    )
    return {"hidden": hidden, "words": np.asarray(words), "next": np.asarray(next_sentence)}


def _encoded(
    w: Mapping[str, NDArray[np.float64]], ids: Sequence[int], types: Sequence[int]
) -> NDArray[np.float64]:
    table = w[TOKEN_TYPES]
    # tf.one_hot(2, depth=2) is all zeros.
    one_hot = np.array(
        [[float(row == token_type) for row in range(len(table))] for token_type in types]
    )
    hidden = w["bert/embeddings/word_embeddings"][list(ids)] + one_hot @ table
    hidden = _normalize(
        w, "bert/embeddings", hidden + w["bert/embeddings/position_embeddings"][: len(ids)]
    )
    for layer in (f"bert/encoder/layer_{number}" for number in range(LAYERS)):
        query, key, value = (
            _apply(w, f"{layer}/attention/self/{part}", hidden)
            .reshape(len(ids), HEADS, -1)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        weights = np.exp(query @ key.transpose(0, 2, 1) / np.sqrt(HIDDEN // HEADS))
        context = (weights / weights.sum(axis=2, keepdims=True)) @ value
        attended = _apply(
            w,
            f"{layer}/attention/output/dense",
            context.transpose(1, 0, 2).reshape(len(ids), HIDDEN),
        )
        hidden = _normalize(w, f"{layer}/attention/output", attended + hidden)
        inner = _gelu(_apply(w, f"{layer}/intermediate/dense", hidden))
        hidden = _normalize(
            w, f"{layer}/output", _apply(w, f"{layer}/output/dense", inner) + hidden
        )
    return hidden


def write_pretrained(folder: Path) -> None:
    """Saves a pre-trained BERT as Google's were released, and what TensorFlow computes with the
    variables it saved.
    """
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    tf.disable_resource_variables()
    v = {
        name: tf.get_variable(name, initializer=values)
        for name, values in pretrained_variables().items()
    }

    def dense(name: str, x: Any) -> Any:
        return tf.matmul(x, v[f"{name}/kernel"]) + v[f"{name}/bias"]

    def norm(name: str, x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
        beta, gamma = (v[f"{name}/LayerNorm/{part}"] for part in ("beta", "gamma"))
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)

    def heads(x: Any) -> Any:
        return tf.transpose(tf.reshape(x, [len(IDS), HEADS, HIDDEN // HEADS]), [1, 0, 2])

    def gelu(x: Any) -> Any:
        return x * 0.5 * (1.0 + tf.erf(x / np.sqrt(2.0).astype(np.float32)))

    words = v["bert/embeddings/word_embeddings"]
    x = tf.gather(words, IDS) + tf.matmul(tf.one_hot(TYPES, 2), v[TOKEN_TYPES])
    x = norm("bert/embeddings", x + v["bert/embeddings/position_embeddings"][: len(IDS)])
    for layer in (f"bert/encoder/layer_{number}" for number in range(LAYERS)):
        query, key, value = (
            heads(dense(f"{layer}/attention/self/{part}", x)) for part in ("query", "key", "value")
        )
        weights = tf.nn.softmax(
            tf.matmul(query, key, transpose_b=True) / np.float32(np.sqrt(HIDDEN // HEADS))
        )
        context = tf.reshape(tf.transpose(tf.matmul(weights, value), [1, 0, 2]), [len(IDS), HIDDEN])
        x = norm(f"{layer}/attention/output", dense(f"{layer}/attention/output/dense", context) + x)
        inner = gelu(dense(f"{layer}/intermediate/dense", x))
        x = norm(f"{layer}/output", dense(f"{layer}/output/dense", inner) + x)
    pooled = tf.tanh(dense("bert/pooler/dense", x[:1]))
    transformed = norm(
        "cls/predictions/transform", gelu(dense("cls/predictions/transform/dense", x))
    )
    outputs = {
        "hidden": x,
        "words": tf.matmul(transformed, words, transpose_b=True) + v["cls/predictions/output_bias"],
        "next": tf.matmul(pooled, v["cls/seq_relationship/output_weights"], transpose_b=True)[0]
        + v["cls/seq_relationship/output_bias"],
    }
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / PRETRAINED), write_meta_graph=False)
        np.savez(folder / OUTPUTS, **session.run(outputs))


def write(folder: Path, token_types: int) -> None:
    """Trains nothing, but saves as the original does: Adam's slots and the step too, and one data
    file a device.
    """
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
        for name, names, part in (
            ("long", LONG_NAMES, ""),
            ("sliced", ["bert/sliced"], "4 8 0,2:0,8"),
        ):
            tensors = [np.full((2, 8), number, np.float32) for number in range(len(names))]
            session.run(
                tf.raw_ops.SaveV2(
                    prefix=str(folder / name),
                    tensor_names=names,
                    shape_and_slices=[part] * len(names),
                    tensors=tensors,
                )
            )


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/LayerNorm/{part}": (HIDDEN,) for part in ("beta", "gamma")}


def _apply(
    w: Mapping[str, NDArray[np.float64]], name: str, hidden: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.asarray(hidden @ w[f"{name}/kernel"] + w[f"{name}/bias"])


def _gelu(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import erf

    return np.asarray(values * 0.5 * (1 + erf(values / np.sqrt(2))))


def _normalize(
    w: Mapping[str, NDArray[np.float64]], name: str, hidden: NDArray[np.float64]
) -> NDArray[np.float64]:
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
    return np.asarray(scaled * w[f"{name}/LayerNorm/gamma"] + w[f"{name}/LayerNorm/beta"])


if __name__ == "__main__":
    if sys.argv[2] == "pretrained":
        write_pretrained(Path(sys.argv[1]))
    else:
        write(Path(sys.argv[1]), int(sys.argv[2]))

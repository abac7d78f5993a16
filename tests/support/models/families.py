"""Random checkpoints of every family, made by transformers, and transformers' own scores of token
ids.

`python -m tests.support.models.families` prints how far the scores of beamrank are from those.
"""

import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from models.architectures.encoder.model import EncoderScorer
from models.architectures.kernels.attention import Layout, TokenRows
from models.architectures.kernels.compiled import Kernels
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from models.scoring.packing import fill_blocks

SIZES = {
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 50,
}
VOCABULARY = 500
POSITIONS = 48
WINDOW = 8
_PADDED = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS + 2,
    "pad_token_id": 1,
    "type_vocab_size": 1,
}
_MODERN = {
    **SIZES,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "local_attention": 2 * WINDOW,
}
_MODERN |= {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}


class Case(NamedTuple):
    """A model_type of transformers, and its configuration."""

    model_type: str
    config: dict[str, Any]


_BERT = {**SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS}
CASES = {
    "bert": Case("bert", _BERT),
    "bert one logit": Case(
        "bert",
        {**_BERT, "num_labels": 1, "num_hidden_layers": 1, "type_vocab_size": 4}
        | {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-3},
    ),
    "roberta": Case("roberta", {**SIZES, **_PADDED}),
    "roberta two types": Case(
        "roberta", {**SIZES, **_PADDED, "type_vocab_size": 2, "num_labels": 1}
    ),
    "xlm-roberta": Case(
        "xlm-roberta", {**SIZES, **_PADDED, "num_labels": 1, "layer_norm_eps": 1e-5}
    ),
    "xlm-roberta offset": Case(
        "xlm-roberta",
        {**SIZES, **_PADDED, "pad_token_id": 7, "max_position_embeddings": POSITIONS + 8},
    ),
    "camembert": Case("camembert", {**SIZES, **_PADDED, "hidden_act": "gelu_new"}),
    "electra": Case("electra", {**_BERT, "embedding_size": 20, "num_labels": 1}),
    "electra same width": Case("electra", {**_BERT, "embedding_size": 36, "type_vocab_size": 3}),
    "distilbert": Case(
        "distilbert",
        {"dim": 36, "n_layers": 3, "n_heads": 4, "hidden_dim": 50, "vocab_size": VOCABULARY}
        | {"max_position_embeddings": POSITIONS},
    ),
    "distilbert one logit": Case(
        "distilbert",
        {"dim": 30, "n_layers": 2, "n_heads": 2, "hidden_dim": 50, "vocab_size": VOCABULARY}
        | {"max_position_embeddings": POSITIONS, "sinusoidal_pos_embds": True, "num_labels": 1},
    ),
    "modernbert cls": Case("modernbert", {**_MODERN, "num_labels": 1, "num_hidden_layers": 4}),
    "modernbert mean": Case(
        "modernbert", {**_MODERN, "num_labels": 1, "classifier_pooling": "mean"}
    ),
    # As the modernbert-ja models and their re-rankers, which name what they have.
    "modernbert rope": Case("modernbert", {**_MODERN, "position_embedding_type": "rope"}),
    "modernbert last layer windowed": Case("modernbert", {**_MODERN, "num_hidden_layers": 3}),
    "modernbert biases": Case(
        "modernbert",
        {
            **_MODERN,
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "classifier_bias": True,
        }
        | {
            "classifier_activation": "tanh",
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": False,
        },
    ),
    "modernbert layer types": Case(
        "modernbert",
        {**_MODERN, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
        | {"classifier_pooling": "mean", "local_attention": 3}
        | {"rope_parameters": {"full_attention": {"rope_theta": 500.0, "rope_type": "default"}}},
    ),
}


def random_model(model_type: str, seed: int = 0, **config: Any) -> PreTrainedModel:
    """A classifier whose weights are so large that every part changes the score."""
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(
        AutoConfig.for_model(model_type, **config)
    )
    randomize(model)
    return model


def randomize(model: torch.nn.Module) -> None:
    """Draws every weight anew: scales near 1, biases near 0, matrices that keep the size of their
    input.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.2)
        else:
            torch.nn.init.normal_(parameter, std=2.5 / parameter.shape[1] ** 0.5)


def save_case(folder: Path, name: str, **config: Any) -> str:
    """Writes the random checkpoint of a case; `config` adds to its configuration."""
    case = CASES[name]
    random_model(case.model_type, **{**case.config, **config}).save_pretrained(folder)
    return str(folder)


def wanted_log_odds(
    folder: str,
    inputs: Sequence[Sequence[int]],
    types: Sequence[Sequence[int]],
    dtype: torch.dtype = torch.float32,
) -> tuple[list[float], list[float]]:
    """The log-odds of transformers: of each input on its own, and of all in one padded batch."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).eval()
    typed = "type_vocab_size" in model.config.to_dict() and model.config.type_vocab_size > 1
    pad, longest = model.config.pad_token_id, max(map(len, inputs))

    def score(ids: list[list[int]], types: list[list[int]], mask: list[list[int]]) -> list[float]:
        tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        if typed:
            tensors["token_type_ids"] = torch.tensor(types)
        with torch.inference_mode():
            logits = model(**tensors).logits.float()
        return (logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]).tolist()

    alone = [
        score([list(ids)], [list(kinds)], [[1] * len(ids)])[0]
        for ids, kinds in zip(inputs, types, strict=True)
    ]
    padded = score(
        [[*ids, *[pad] * (longest - len(ids))] for ids in inputs],
        [[*kinds, *[0] * (longest - len(kinds))] for kinds in types],
        [[1] * len(ids) + [0] * (longest - len(ids)) for ids in inputs],
    )
    return alone, padded


class Inputs(NamedTuple):
    """Token ids and token types of some inputs."""

    ids: list[list[int]]
    types: list[list[int]]


# Shorter than, as long as and longer than the windows and the blocks of rows; twice the same.
LENGTHS = [
    POSITIONS,
    POSITIONS,
    2 * WINDOW + 1,
    2 * WINDOW,
    WINDOW + 2,
    WINDOW + 1,
    WINDOW,
    WINDOW - 1,
    5,
    1,
    1,
]


def random_inputs(name: str, lengths: Sequence[int] = LENGTHS) -> Inputs:
    """Random ids beyond those of special tokens; two token types where the case has them."""
    typed = CASES[name].model_type in ("bert", "electra")
    drawn = torch.Generator().manual_seed(1)
    ids = [torch.randint(10, VOCABULARY, (length,), generator=drawn).tolist() for length in lengths]
    return Inputs(
        ids, [[int(typed and 2 * place > length) for place in range(length)] for length in lengths]
    )


class Scorer:
    """A checkpoint as beamrank loads it: for a CPU, in blocks, or without padding, as on a GPU."""

    def __init__(
        self,
        folder: str,
        dtype: torch.dtype = torch.float32,
        blocks: bool = True,
        kernels: Kernels | None = None,
    ) -> None:
        checkpoint = resolve_checkpoint(folder, "mono")
        self._model = checkpoint.architecture.build(load_weights(checkpoint), dtype)
        assert isinstance(self._model, EncoderScorer)
        self._layout = self._model.pack(kernels) if blocks else None

    def __call__(
        self, inputs: Inputs, order: Sequence[int] | None = None, varlen: bool = False
    ) -> list[float]:
        """The log-odds of inputs, in some order or of some of them."""
        chosen = np.arange(len(inputs.ids)) if order is None else np.array(order)
        lengths, layout = (
            np.array([len(each) for each in inputs.ids])[chosen],
            self._layout or Layout(varlen=varlen),
        )
        blocks = (
            fill_blocks(layout.rows_of(lengths), layout.block)
            if layout.block
            else [np.arange(len(chosen))]
        )
        scores = np.empty(len(chosen))
        for some in blocks:
            ids, types = (
                torch.tensor([*chain.from_iterable(each[place] for place in chosen[some].tolist())])
                for each in inputs
            )
            with torch.inference_mode():
                scores[some] = self._model(
                    TokenRows(ids, types, lengths[some].tolist(), layout)
                ).numpy()
        found: list[float] = scores.tolist()
        return found


def main() -> None:
    """Prints, for each case, the largest difference from transformers and the spread of the
    log-odds.
    """
    print(f"{'case':<32} {'float32':>8} {'bfloat16':>8} {'spread':>8}")
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            save_case(Path(folder), name)
            inputs = random_inputs(name)
            wanted = torch.tensor(wanted_log_odds(folder, *inputs)[0])
            found = [
                torch.tensor(Scorer(folder, dtype)(inputs))
                for dtype in (torch.float32, torch.bfloat16)
            ]
            exact, half = ((each - wanted).abs().max().item() for each in found)
        print(f"{name:<32} {exact:8.1e} {half:8.2f} {wanted.std():8.2f}")


if __name__ == "__main__":
    main()

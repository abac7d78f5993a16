"""Distillation of the bi-encoder's layers inside the cross-encoder: each token learns the
bi-encoder's hidden state.

The bi-encoder reads query and doc in separate inputs, with all of its units. The cross-encoder
reads them side by side, with one [CLS], the doc at later positions, and a third of the units. Every
token has a target state, so a few thousand inputs suffice. Neither labels nor scores are used (Jiao
et al. 2020, TinyBERT, distil hidden states too).
"""

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import BertForSequenceClassification, BertModel

from beamrank.notes import Progress
from experiments.embedded_pair.descent import descend
from experiments.embedded_pair.wiring.segment_marks import MarkedShape, embeddings_of, layers_of

# The weight of the error of a segment's mean beside that of its tokens: the last layer gathers the
# means.
_MEAN_SHARE = 4.0
# All means learn one length, about that of a short text's mean in all-MiniLM-L6-v2. Those of longer
# texts are shorter there, and the last layer, whose norm divides by the size of both means
# together, would rank docs by their length too.
_LENGTH = 4.0
_LEARNING_RATE = 3e-4


def distil_layers(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    encoder: BertModel,
    batches: Sequence[Mapping[str, Tensor]],
    dtype: torch.dtype,
    progress: Progress,
) -> None:
    """Trains the embeddings and all layers but the last; marks, words and the word embeddings stay
    as they are.

    Args:
        model: a model with marks, whose last layer is 0.
        shape: where the marks are.
        encoder: the bi-encoder, not pruned.
        batches: real inputs of the model, as transformers takes them; one per step.
        dtype: what is computed in; the weights stay float32.
        progress: receives each step.
    """
    # Backward through SDPA takes longer on CPUs (`models.training.session`).
    model.set_attn_implementation("eager")
    descend(
        _train_own(model, shape),
        batches,
        functools.partial(state_loss, model, shape, encoder),
        _LEARNING_RATE,
        dtype,
        progress,
    )
    model.requires_grad_(False)


def state_loss(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    encoder: BertModel,
    inputs: Mapping[str, Tensor],
) -> Tensor:
    """The distance of the tokens' states to the bi-encoder's, and of their mean over each segment
    to its embedding of the segment, which has a length of `_LENGTH`.
    """
    states: Tensor = model.bert(**inputs, output_hidden_states=True).hidden_states[-2]
    losses = []
    for segment in range(shape.segments):
        of = segment_tokens(inputs, segment)
        with torch.inference_mode():
            wanted = read_alone(encoder, inputs["input_ids"], of)
        given, wanted = states[..., : shape.own][of].float(), wanted.float().clone()
        texts = of.nonzero()[:, 0]
        tokens = (given - wanted).square().mean() / wanted.square().mean()
        mean = _means(given, texts, len(of))
        embedding = _LENGTH * normalize(_means(wanted, texts, len(of)), dim=1)
        distances = (mean - embedding).square().sum(dim=1) / _LENGTH**2
        losses.append(tokens + _MEAN_SHARE * distances.mean())
    return torch.stack(losses).mean()


def segment_tokens(inputs: Mapping[str, Tensor], segment: int) -> Tensor:
    """bool[n, t], the tokens of a segment; [CLS] belongs to none."""
    of = (inputs["token_type_ids"] == segment) & inputs["attention_mask"].bool()
    of[:, 0] = False
    return of


def read_alone(encoder: BertModel, ids: Tensor, of: Tensor) -> Tensor:
    """The states of one segment of each input, read by a bi-encoder as an input of its own:
    float[tokens, own].

    Args:
        encoder: the bi-encoder.
        ids: int[n, t], inputs; the first token is [CLS].
        of: bool[n, t], the tokens of the segment; the result has their order.
    """
    inputs, places = of.nonzero(as_tuple=True)
    counts = of.sum(dim=1)
    alone = torch.zeros(len(ids), int(counts.max()) + 1, dtype=ids.dtype)
    to = of.cumsum(dim=1)[inputs, places]
    alone[:, 0] = ids[:, 0]
    alone[inputs, to] = ids[inputs, places]
    mask = (torch.arange(alone.shape[1])[None] <= counts[:, None]).long()
    states: Tensor = encoder(input_ids=alone, attention_mask=mask).last_hidden_state
    return states[inputs, to]


def _means(states: Tensor, texts: Tensor, count: int) -> Tensor:
    """float[count, own], the mean of each text's states; texts: int[tokens], the text of each
    token.
    """
    sums = torch.zeros(count, states.shape[1]).index_add(0, texts, states)
    return sums / texts.bincount(minlength=count).clamp(min=1)[:, None]


def _train_own(model: BertForSequenceClassification, shape: MarkedShape) -> list[Tensor]:
    """Makes trainable what came from the bi-encoder, except the word embeddings, and nothing that
    was added.
    """
    model.requires_grad_(False)
    own, rows, units = (
        torch.arange(shape.own),
        shape.own_rows(),
        torch.arange(model.config.intermediate_size),
    )
    embeddings = embeddings_of(model.bert)
    changed = [
        _train(embeddings.token_type_embeddings.weight, torch.arange(shape.segments), own),
        _train(
            embeddings.position_embeddings.weight,
            torch.arange(model.config.max_position_embeddings),
            own,
        ),
        *_train_norm(embeddings.LayerNorm, own),
    ]
    for layer in layers_of(model.bert)[:-1]:
        attention = layer.attention
        for part in (attention.self.query, attention.self.key, attention.self.value):
            changed += _train_linear(part, rows, own)
        changed += _train_linear(attention.output.dense, own, rows)
        changed += _train_linear(layer.intermediate.dense, units, own)
        changed += _train_linear(layer.output.dense, own, units)
        changed += [
            *_train_norm(attention.output.LayerNorm, own),
            *_train_norm(layer.output.LayerNorm, own),
        ]
    return changed


def _train_linear(linear: nn.Linear, rows: Tensor, columns: Tensor) -> list[Tensor]:
    return [_train(linear.weight, rows, columns), _train(linear.bias, rows)]


def _train_norm(norm: nn.LayerNorm, own: Tensor) -> list[Tensor]:
    return [_train(norm.weight, own), _train(norm.bias, own)]


def _train(parameter: Tensor, *places: Tensor) -> Tensor:
    """Makes a parameter trainable in some rows, or where some rows and columns cross."""
    mask = torch.zeros_like(parameter)
    mask[torch.meshgrid(*places, indexing="ij")] = 1
    parameter.requires_grad_(True)
    parameter.register_hook(lambda gradient: gradient * mask)  # type: ignore[no-untyped-call]
    return parameter

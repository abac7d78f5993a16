"""Layers that were wired and pruned, trained to give each token the state that the bi-encoder gives it.

The bi-encoder read query and doc in inputs of their own, with all of its units. Here they stand side by side, with one
[CLS], the doc at later positions, and a third of the units. Every token of an input has a state to come near to, so
that some thousands of inputs teach much: no labels, no scores (Jiao et al. 2020, TinyBERT, distil hidden states too).
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import BertForSequenceClassification, BertModel

from beamrank.storage import files as storage
from experiments.embedded_pair.marks import MarkedShape, embeddings_of, layers_of, train_where
from models.training.loop.trainer import Listener

# What the error of a segment's mean counts beside that of its tokens: the mean is what is gathered later.
_MEAN_SHARE = 8.0
_DIGEST = "digest"
_WARM_UP, _BETAS, _CLIP = 0.05, (0.9, 0.99), 1.0


@dataclass(frozen=True)
class Imitation:
    """How to train.

    Attributes:
        pairs: how many inputs; each is seen once.
        learning_rate: the highest; it rises over the first steps and falls to 0.
        dtype: what is computed in; weights stay float32.
        listener: is told of each step.
        kept: the file that the result is kept in.
    """

    pairs: int
    learning_rate: float
    dtype: torch.dtype
    listener: Listener
    kept: str


def imitate_states(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    encoder: BertModel,
    batches: Sequence[Mapping[str, Tensor]],
    imitation: Imitation,
) -> None:
    """Trains all layers but the last, and what comes before them, but for marks and words.

    What the same training of the same model on the same inputs kept is taken instead.

    Args:
        model: has marks; its last layer does nothing yet.
        shape: where they are.
        encoder: the bi-encoder, whole.
        batches: real inputs of the model, as transformers takes them; one a step.
        imitation: how.
    """
    digest = _digest(model, encoder, batches, imitation)
    kept = _read_kept(imitation, digest)
    if kept is not None:
        model.load_state_dict(kept)
        return
    parameters, steps = _train_own(model, shape), len(batches)
    optimizer = torch.optim.Adam(parameters, lr=imitation.learning_rate, betas=_BETAS)
    rising = max(1, round(_WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
    )
    for done, inputs in enumerate(batches, start=1):
        # Anew at each step: one autocast casts the weights once, and would not see what a step changes.
        with torch.autocast("cpu", imitation.dtype, enabled=imitation.dtype != torch.float32):
            loss = state_loss(model, shape, encoder, inputs)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, _CLIP)
        optimizer.step()
        schedule.step()
        imitation.listener.update(done, steps, f"states' loss {loss.item():.4f}")
    model.requires_grad_(False)
    storage.replace(imitation.kept, save(model.state_dict(), {_DIGEST: digest}))


def state_loss(
    model: BertForSequenceClassification, shape: MarkedShape, encoder: BertModel, inputs: Mapping[str, Tensor]
) -> Tensor:
    """How far tokens' states, and their means over each segment, are from the bi-encoder's: 0 if they are these."""
    states = _states(model, inputs)[..., : shape.own]
    losses = []
    for segment in range(shape.segments):
        of = segment_tokens(inputs, segment)
        with torch.inference_mode():
            wanted = read_alone(encoder, inputs["input_ids"], of)
        given, wanted = states[of].float(), wanted.float().clone()
        texts = of.nonzero()[:, 0]
        tokens = (given - wanted).square().mean() / wanted.square().mean()
        means = [_means(each, texts, len(of)) for each in (given, wanted)]
        cosines = (normalize(means[0], dim=1) * normalize(means[1], dim=1)).sum(dim=1)
        losses.append(tokens + _MEAN_SHARE * (1 - cosines).mean())
    return torch.stack(losses).mean()


def segment_tokens(inputs: Mapping[str, Tensor], segment: int) -> Tensor:
    """bool[n, t], which tokens are of a segment; [CLS] is of none."""
    of = (inputs["token_type_ids"] == segment) & inputs["attention_mask"].bool()
    of[:, 0] = False
    return of


def read_alone(encoder: BertModel, ids: Tensor, of: Tensor) -> Tensor:
    """What a bi-encoder makes of one segment of each input, by itself: float[tokens, own], in the order of `of`.

    Args:
        encoder: the bi-encoder.
        ids: int[n, t], inputs; the first token is [CLS].
        of: bool[n, t], which tokens are the segment's.
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


def _digest(
    model: BertForSequenceClassification,
    encoder: BertModel,
    batches: Sequence[Mapping[str, Tensor]],
    imitation: Imitation,
) -> str:
    """SHA-256 of what the result follows from beside this code: the layers, what they come near to, inputs, rate."""
    digest = hashlib.sha256(f"{imitation.learning_rate} {imitation.dtype}".encode())
    for name, tensor in chain(*(each.items() for each in (model.state_dict(), encoder.state_dict(), *batches))):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy())
    return digest.hexdigest()


def _read_kept(imitation: Imitation, digest: str) -> dict[str, Tensor] | None:
    """The weights that were kept, if they are those of this training."""
    if not os.path.exists(imitation.kept):
        return None
    try:
        with safe_open(imitation.kept, "pt") as file:
            same = (file.metadata() or {}).get(_DIGEST) == digest
            weights = {name: file.get_tensor(name) for name in file.keys()} if same else None  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        imitation.listener.note(f"the trained layers in {imitation.kept} cannot be read ({error}): trained again")
        return None
    if same:
        imitation.listener.note(f"the layers were trained before: taken from {imitation.kept}")
    else:
        imitation.listener.note(f"the layers in {imitation.kept} are of another training: trained again")
    return weights


def _means(states: Tensor, texts: Tensor, count: int) -> Tensor:
    """float[count, own], the mean of each text's states; texts: int[tokens], which text each is of."""
    sums = torch.zeros(count, states.shape[1]).index_add(0, texts, states)
    return sums / texts.bincount(minlength=count).clamp(min=1)[:, None]


def _states(model: BertForSequenceClassification, inputs: Mapping[str, Tensor]) -> Tensor:
    """What the last layer is given, float[n, t, width]."""
    states: Tensor = model.bert(**inputs, output_hidden_states=True).hidden_states[-2]
    return states


def _train_own(model: BertForSequenceClassification, shape: MarkedShape) -> list[Tensor]:
    """Lets a training change what the bi-encoder brought, but for the table of words, and nothing that was added."""
    model.requires_grad_(False)
    own, rows, units = torch.arange(shape.own), shape.own_rows(), torch.arange(model.config.intermediate_size)
    embeddings = embeddings_of(model.bert)
    changed = [
        _train(embeddings.token_type_embeddings.weight, torch.arange(shape.segments), own),
        _train(embeddings.position_embeddings.weight, torch.arange(model.config.max_position_embeddings), own),
        *_train_norm(embeddings.LayerNorm, own),
    ]
    for layer in layers_of(model.bert)[:-1]:
        attention = layer.attention
        for part in (attention.self.query, attention.self.key, attention.self.value):
            changed += [_train(part.weight, rows, own), _train(part.bias, rows)]
        changed += [_train(attention.output.dense.weight, own, rows), _train(attention.output.dense.bias, own)]
        changed += [_train(layer.intermediate.dense.weight, units, own), _train(layer.intermediate.dense.bias, units)]
        changed += [_train(layer.output.dense.weight, own, units), _train(layer.output.dense.bias, own)]
        changed += [*_train_norm(attention.output.LayerNorm, own), *_train_norm(layer.output.LayerNorm, own)]
    return changed


def _train_norm(norm: nn.LayerNorm, own: Tensor) -> list[Tensor]:
    return [_train(norm.weight, own), _train(norm.bias, own)]


def _train(parameter: Tensor, *places: Tensor) -> Tensor:
    """Lets a training change a parameter in some rows, or where some rows and columns cross."""
    mask = torch.zeros_like(parameter)
    mask[torch.meshgrid(*places, indexing="ij")] = 1
    train_where(parameter, mask)
    return parameter

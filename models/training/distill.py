"""The training loop: one for mono, which scores groups, and duo, which scores pairs of a group's passages."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import BertForSequenceClassification

from models.training.encoding import Layout, pad
from models.training.losses import (
    check_finite,
    listwise_cross_entropy,
    listwise_kl,
    log_odds,
    pairwise_cross_entropy,
    pointwise_cross_entropy,
)
from models.training.mining import Group

_INPUTS_AT_A_TIME = 16
_WARM_UP = 0.05
_LISTWISE_WEIGHT, _POINTWISE_WEIGHT = 0.3, 0.1
_PAIRS = 4
_TOKENIZER_FILES = ("vocab.txt", "tokenizer_config.json")

Loss = Callable[[BertForSequenceClassification, Layout, Sequence[Group]], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        temperature: what the teacher's cosines are multiplied by.
        save_seconds: a checkpoint is written this often, and at the end.
    """

    steps: int
    groups_a_step: int = 4
    learning_rate: float = 1e-4
    temperature: float = 20.0
    max_doc_tokens: int = 96
    save_seconds: float = 300.0
    seed: int = 0


def start_mono(folder: str) -> BertForSequenceClassification:
    """A sequence classifier with a new head on an encoder; its embeddings stay as they are."""
    model = BertForSequenceClassification.from_pretrained(
        folder,
        dtype=torch.float32,
        num_labels=2,
        id2label={0: "not_relevant", 1: "relevant"},
        label2id={"not_relevant": 0, "relevant": 1},
    )
    model.bert.embeddings.word_embeddings.requires_grad_(False)
    return model


def start_duo(folder: str) -> BertForSequenceClassification:
    """A mono checkpoint with a third token type: the second and a random vector of length 1.

    A mere copy of the second would leave only positions to tell the docs apart by. With this one, before any training,
    z_ij averaged over j orders docs nearly as mono does.
    """
    model = start_mono(folder)
    rows = model.bert.embeddings.token_type_embeddings.weight.detach()
    offset = torch.nn.functional.normalize(torch.randn(1, rows.shape[1]))
    table = torch.nn.Embedding(3, rows.shape[1])
    table.weight.data = torch.cat([rows[:2], rows[1:2] + offset])
    model.bert.embeddings.token_type_embeddings = table
    model.config.type_vocab_size = 3
    return model


def mono_loss(recipe: Recipe) -> Loss:
    """The teacher's distribution over each group, and the labels where there are any."""

    def loss(model: BertForSequenceClassification, layout: Layout, groups: Sequence[Group]) -> Tensor:
        inputs = [layout.lay_out(group.question, passage) for group in groups for passage in group.passages]
        scores = _score(model, inputs).view(len(groups), -1)
        teacher = torch.tensor(np.stack([group.teacher_scores for group in groups]))
        labelled = torch.tensor([float(group.labelled) for group in groups])
        return (
            listwise_kl(scores, teacher, recipe.temperature)
            + _LISTWISE_WEIGHT * listwise_cross_entropy(scores, labelled)
            + _POINTWISE_WEIGHT * pointwise_cross_entropy(scores, labelled)
        )

    return loss


def duo_loss(recipe: Recipe) -> Loss:
    """Both orders of a few pairs a group; a known answer counts half as a label, half as its teacher's score."""
    rng = random.Random(recipe.seed)

    def loss(model: BertForSequenceClassification, layout: Layout, groups: Sequence[Group]) -> Tensor:
        inputs, wanted = [], []
        for group in groups:
            pairs = rng.sample(list(itertools.combinations(range(len(group.passages)), 2)), _PAIRS)
            for i, j in itertools.chain(pairs, ((j, i) for i, j in pairs)):
                inputs.append(layout.lay_out(group.question, group.passages[i], group.passages[j]))
                wanted.append(_preference(group, i, j, recipe.temperature))
        return pairwise_cross_entropy(_score(model, inputs), torch.tensor(wanted))

    return loss


def train(
    model: BertForSequenceClassification,
    layout: Layout,
    groups: list[Group],
    loss_of: Loss,
    recipe: Recipe,
    output: str,
) -> None:
    """Trains on the groups, in an order that the seed decides, and writes checkpoints to `output`.

    Raises:
        DataError: the loss is no longer finite.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.01)
    schedule = LambdaLR(optimizer, lambda step: _learning_rate_factor(step, recipe.steps))
    batches = _draw_batches(groups, recipe)
    model.train()
    started = saved = time.monotonic()
    losses: list[float] = []
    for step, batch in enumerate(itertools.islice(batches, recipe.steps), start=1):
        loss = loss_of(model, layout, batch)
        check_finite(loss, step)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 10 == 0:
            seconds = time.monotonic() - started
            print(f"step {step} of {recipe.steps}: loss {np.mean(losses[-10:]):.4f}, {seconds:.0f} s", flush=True)
        if time.monotonic() - saved > recipe.save_seconds:
            save(model, layout, output)
            saved = time.monotonic()
    save(model, layout, output)


def save(model: BertForSequenceClassification, layout: Layout, folder: str) -> None:
    """Writes a Hugging Face folder with float16 weights and the tokenizer."""
    path = Path(folder)
    tokenizer = {name: (layout.folder / name).read_bytes() for name in _TOKENIZER_FILES}
    weights = {name: weight.to(torch.float16) for name, weight in model.state_dict().items()}
    model.save_pretrained(path, state_dict=weights)
    layout.tokenizer.save(str(path / "tokenizer.json"))
    for name, content in tokenizer.items():
        path.joinpath(name).write_bytes(content)


def _score(model: BertForSequenceClassification, inputs: list[tuple[list[int], list[int]]]) -> Tensor:
    """Log-odds in the order of the inputs; they are run sorted by length, so that little is padding."""
    order = sorted(range(len(inputs)), key=lambda number: len(inputs[number][0]))
    scores = []
    for start in range(0, len(order), _INPUTS_AT_A_TIME):
        batch = pad([inputs[number] for number in order[start : start + _INPUTS_AT_A_TIME]])
        scores.append(log_odds(model(**batch).logits))
    return torch.cat(scores)[torch.argsort(torch.tensor(order))]


def _preference(group: Group, i: int, j: int, temperature: float) -> float:
    difference = float(group.teacher_scores[i] - group.teacher_scores[j]) * temperature
    taught = float(1 / (1 + np.exp(-difference)))
    if group.labelled and 0 in (i, j):
        return (taught + (i == 0)) / 2
    return taught


def _draw_batches(groups: list[Group], recipe: Recipe) -> "itertools.chain[list[Group]]":
    rng = random.Random(recipe.seed)
    size = recipe.groups_a_step

    def epoch(_: int) -> list[list[Group]]:
        order = rng.sample(groups, len(groups))
        return [order[start : start + size] for start in range(0, len(order) - size + 1, size)]

    return itertools.chain.from_iterable(map(epoch, itertools.count()))


def _learning_rate_factor(step: int, steps: int) -> float:
    warm_up = max(1, round(_WARM_UP * steps))
    return min((step + 1) / warm_up, (steps - step) / max(1, steps - warm_up))

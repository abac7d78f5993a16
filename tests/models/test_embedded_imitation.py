import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from beamrank.ranking.input_layout import InputLimits
from experiments.embedded_pair.assemble import wire_apart
from experiments.embedded_pair.beginning import imitation_batches
from experiments.embedded_pair.imitation import Imitation, imitate_states, read_alone, segment_tokens, state_loss
from experiments.embedded_pair.marks import embeddings_of, layers_of, size_marks
from experiments.embedded_pair.teacher import load_encoder
from models.training.data.encoding import InputEncoder
from models.training.data.examples import Group
from tests.models.test_embedded_assembly import PAIRS, TOKENIZER, batch_of
from tests.support.bert import MINILM

pytestmark = pytest.mark.slow

INPUTS = batch_of(PAIRS[:8])


def test_each_pair_is_trained_on_once_at_most_and_the_same_ones_for_one_seed():
    groups = [Group(f"query {query}", tuple(f"doc {query} {doc}" for doc in range(8)), None) for query in range(20)]
    encoder = InputEncoder(TOKENIZER, InputLimits("original", 34, 64), 256)

    def inputs(count, seed):
        batches = imitation_batches(groups, encoder, count, seed)
        return [tuple(row) for batch in batches for row in batch["input_ids"].tolist()]

    every = inputs(1000, 0)
    assert len(every) == len(set(every)) == 160
    assert len(set(inputs(50, 0))) == 50
    assert set(inputs(50, 0)) <= set(every)
    assert inputs(50, 0) == inputs(50, 0) != inputs(50, 1)


def test_a_segment_is_read_alone_as_if_it_were_the_whole_input():
    encoder = load_encoder(str(MINILM))
    of = segment_tokens(INPUTS, 1)
    with torch.inference_mode():
        states = read_alone(encoder, INPUTS["input_ids"], of)
        for row in range(len(of)):
            ids = torch.cat([INPUTS["input_ids"][row, :1], INPUTS["input_ids"][row][of[row]]])
            whole = encoder(input_ids=ids[None]).last_hidden_state[0, 1:]
            assert torch.allclose(states[of.nonzero()[:, 0] == row], whole, atol=1e-4)


def test_what_is_no_text_is_of_no_segment():
    of = torch.stack([segment_tokens(INPUTS, segment) for segment in (0, 1)])
    assert not of[:, :, 0].any()
    assert torch.equal(of.any(dim=0)[:, 1:], INPUTS["attention_mask"].bool()[:, 1:])
    assert not of.all(dim=0).any()


def wired(encoder):
    """Query and doc apart, and no words."""
    model, shape = wire_apart(encoder, TOKENIZER.cls_id)
    for norm in model.modules():
        if isinstance(norm, torch.nn.LayerNorm):
            norm.weight.data[shape.words] = 0.0
    size_marks(model, shape, INPUTS, encoder.config.num_hidden_layers)
    return model, shape


def imitation(kept, told, noted, learning_rate=1e-3, dtype=torch.float32):
    talk = SimpleNamespace(update=lambda done, total, what: told.append((done, total, what)), note=noted.append)
    return Imitation(80, learning_rate, dtype, talk, str(kept))


def wired_and_damaged():
    damaged = load_encoder(str(MINILM))
    for layer in layers_of(damaged):
        layer.output.dense.weight.data[:, ::3] = 0.0
    return wired(damaged)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The bi-encoder, a damaged one wired, and that after a training; the losses told."""
    encoder = load_encoder(str(MINILM))
    before, shape = wired_and_damaged()
    after = copy.deepcopy(before)
    told: list[Any] = []
    file = tmp_path_factory.mktemp("ten") / "imitated.safetensors"
    imitate_states(after, shape, encoder, [INPUTS] * 10, imitation(file, told, []))
    return encoder, before, after, shape, told


@torch.no_grad()
def loss(model, shape, encoder):
    return float(state_loss(model, shape, encoder, INPUTS))


def test_an_encoder_that_was_only_wired_is_nearer_than_a_damaged_one_and_training_mends_that(trained):
    encoder, before, after, shape, told = trained
    damaged = loss(before, shape, encoder)
    assert loss(wired(encoder)[0], shape, encoder) < damaged / 2
    assert loss(after, shape, encoder) < damaged / 2
    assert [(done, total) for done, total, _ in told] == [(step, 10) for step in range(1, 11)]


def test_what_was_added_to_the_bi_encoder_is_not_trained(trained):
    _, before, after, shape, _ = trained
    added, own = slice(shape.own, None), slice(0, shape.own)
    new_of, changed = dict(after.named_parameters()), 0
    for name, old in before.named_parameters():
        changed += not torch.equal(old, new_of[name])
        if any(
            part in name for part in ("embeddings", "LayerNorm", "query.w", "key.w", "value.w", "intermediate.dense.w")
        ):
            assert torch.equal(old[..., added], new_of[name][..., added]), name
    assert changed > len(new_of) / 2
    for old, new in zip(layers_of(before.bert), layers_of(after.bert), strict=True):
        for part in ("query", "key", "value"):
            rows = torch.cat([shape.all_mark_rows(), torch.arange(shape.width)[shape.word_rows]])
            one, other = (getattr(layer.attention.self, part).weight[rows] for layer in (old, new))
            assert torch.equal(one, other)
        assert torch.equal(old.output.dense.weight[added], new.output.dense.weight[added])
    tables = [embeddings_of(model.bert).word_embeddings.weight[:, own] for model in (before, after)]
    assert torch.equal(*tables)


@pytest.fixture(scope="module")
def kept(trained, tmp_path_factory):
    """What one step made, and the file that it is kept in."""
    encoder, before, _, shape, _ = trained
    after, file = copy.deepcopy(before), tmp_path_factory.mktemp("training") / "records" / "imitated.safetensors"
    imitate_states(after, shape, encoder, [INPUTS], imitation(file, [], []))
    return after, file


def test_what_was_kept_is_taken_by_the_same_training(trained, kept):
    encoder = trained[0]
    after, file = kept
    again, shape = wired_and_damaged()
    told: list[Any] = []
    noted: list[str] = []
    imitate_states(again, shape, encoder, [INPUTS], imitation(file, told, noted))
    assert told == []
    assert noted == [f"the layers were trained before: taken from {file}"]
    assert all(torch.equal(one, other) for one, other in zip(again.parameters(), after.parameters(), strict=True))


@pytest.mark.parametrize("other", ["model", "encoder", "inputs", "learning_rate", "dtype"])
def test_what_another_training_kept_is_not_taken(trained, kept, tmp_path, other):
    encoder, before, _, shape, _ = trained
    mine = tmp_path / "imitated.safetensors"
    mine.write_bytes(kept[1].read_bytes())
    again, encoder = copy.deepcopy((before, encoder))
    told: list[Any] = []
    noted: list[str] = []
    inputs = {name: tensor.clone() for name, tensor in INPUTS.items()}
    changes: dict[str, Any] = {"learning_rate": 2e-3, "dtype": torch.bfloat16}
    how = {other: changes[other]} if other in changes else {}
    if other == "inputs":
        inputs["input_ids"][3, 5] += 1
    elif not how:
        changed = {"model": again.bert, "encoder": encoder}[other]
        layers_of(changed)[2].output.dense.bias.data[0] += 1e-6
    imitate_states(again, shape, encoder, [inputs], imitation(mine, told, noted, **how))
    assert len(told) == 1
    assert noted == [f"the layers in {mine} are of another training: trained again"]


def test_what_was_kept_and_damaged_is_trained_again_and_said(trained, kept, tmp_path):
    encoder, before, _, shape, _ = trained
    mine = tmp_path / "imitated.safetensors"
    mine.write_bytes(kept[1].read_bytes()[:-1000])
    again = copy.deepcopy(before)
    told: list[Any] = []
    noted: list[str] = []
    imitate_states(again, shape, encoder, [INPUTS], imitation(mine, told, noted))
    assert len(told) == 1
    assert noted[0].startswith(f"the trained layers in {mine} cannot be read (")
    assert mine.read_bytes() == kept[1].read_bytes()

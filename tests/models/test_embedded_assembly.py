import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from models.engine import InputLimits
from models.tokenizer import load_tokenizer
from models.training.embedded.assemble import assemble_mono, principal_axes
from models.training.embedded.contrast import make_duo
from models.training.embedded.marks import MarkedShape, hold_marks, outputs_of
from models.training.embedded.pruning import choose_units, prune_units
from models.training.embedded.teacher import encoder_inputs, load_encoder
from models.training.encoding import InputEncoder
from models.training.losses import log_odds
from tests.models.bert import MINILM

QUERIES = [
    "how do I read a file",
    "add two dates",
    "send an email over the network",
    "random numbers from a normal distribution",
]
DOCS = [
    "Open file and return a stream. Raise OSError upon failure.",
    "Read up to size bytes from the object and return them.",
    "A date that is some days after another, by adding a timedelta.",
    "Time difference between two datetime objects.",
    "Send a mail message over SMTP, with the addresses of sender and recipients.",
    "Make a socket and connect it to a host and port.",
    "Normal distribution, also called the Gaussian: mu is the mean, and sigma the standard deviation.",
    "Shuffle a list in place.",
]
PAIRS = [(query, doc) for query in QUERIES for doc in DOCS]
TRIPLES = [(query, one, other) for query in QUERIES for one, other in zip(DOCS, DOCS[1:] + DOCS[:1], strict=True)]
TOKENIZER = load_tokenizer(str(MINILM))


def shallow_encoder():
    """The bi-encoder's first two layers: a bi-encoder too, and quick."""
    encoder = load_encoder(str(MINILM))
    encoder.encoder.layer = encoder.encoder.layer[:2]
    encoder.config.num_hidden_layers = 2
    return encoder


def batch_of(inputs):
    """All inputs in one batch, in their order."""
    encoder = InputEncoder(TOKENIZER, InputLimits("original", 34, 128), 1 << 20)
    (batch,) = encoder.batches(inputs)
    order = np.argsort(batch.rows)
    return {name: tensor[order] for name, tensor in batch.tensors.items()}


def embed(encoder, texts):
    vectors = torch.empty(len(texts), encoder.config.hidden_size)
    for rows, inputs in encoder_inputs(TOKENIZER, texts):
        with torch.inference_mode():
            hidden = encoder(**inputs).last_hidden_state
        vectors[rows] = F.normalize((hidden * inputs["attention_mask"].unsqueeze(-1)).sum(dim=1), dim=-1)
    return vectors


@pytest.fixture(scope="module")
def mono():
    generator = torch.Generator().manual_seed(3)
    encoder = shallow_encoder()
    axes = principal_axes(embed(encoder, QUERIES * 20 + DOCS * 20), 128, generator)
    return assemble_mono(encoder, axes, batch_of(PAIRS), generator)


@torch.inference_mode()
def scores_of(model, inputs):
    return log_odds(model(**batch_of(inputs)).logits)


def test_before_any_training_mono_ranks_about_as_the_cosine(mono):
    encoder = shallow_encoder()
    cosines = (embed(encoder, QUERIES) @ embed(encoder, DOCS).T).flatten()
    scores = scores_of(mono, PAIRS)
    assert float(torch.corrcoef(torch.stack([cosines, scores]))[0, 1]) > 0.85
    assert float(scores.std()) == pytest.approx(3, rel=0.3)


def test_until_tokens_are_compared_a_query_sees_nothing_of_its_doc(mono):
    one, other = batch_of([(QUERIES[0], DOCS[0])]), batch_of([(QUERIES[0], DOCS[6])])
    query = 1 + one["input_ids"][0].tolist().index(TOKENIZER.sep_id)
    below = mono.bert.encoder.layer[1]
    assert torch.allclose(outputs_of(mono, below, one)[:, :query], outputs_of(mono, below, other)[:, :query], atol=1e-4)
    opened = copy.deepcopy(mono)
    opened.bert.encoder.layer[2].attention.output.dense.weight.data.normal_(0.0, 0.1)
    comparing = opened.bert.encoder.layer[2]
    changed = outputs_of(opened, comparing, one)[:, :query] - outputs_of(opened, comparing, other)[:, :query]
    assert float(changed.abs().max()) > 1e-3


def test_a_step_changes_no_mark(mono):
    shape = MarkedShape(384, 12, 2)
    trained = copy.deepcopy(mono)
    trained.bert.embeddings.word_embeddings.requires_grad_(False)
    hold_marks(trained, shape)
    inputs = batch_of(PAIRS)
    trained(**inputs).logits.square().sum().backward()
    with torch.no_grad():
        for parameter in trained.parameters():
            if parameter.grad is not None:
                parameter -= 1e-3 * parameter.grad.sign()
    assert int((trained.bert.encoder.layer[0].attention.self.key.weight.grad != 0).sum()) > 100_000
    marks = outputs_of(trained, trained.bert.encoder.layer[1], inputs)[..., shape.marks] @ shape.patterns().T
    real = inputs["attention_mask"].bool()
    for segment in (0, 1):
        own = marks[real & (inputs["token_type_ids"] == segment)]
        assert float(own[:, segment].min()) > 1e-3
        assert float(own[:, 1 - segment].abs().max()) < 1e-5


def test_before_any_training_duo_prefers_about_what_mono_scores_higher(mono):
    duo = make_duo(mono, batch_of(TRIPLES))
    assert duo.config.type_vocab_size == 3
    z = scores_of(duo, TRIPLES)
    margins = scores_of(mono, [(query, one) for query, one, _ in TRIPLES]) - scores_of(
        mono, [(query, other) for query, _, other in TRIPLES]
    )
    assert float(torch.corrcoef(torch.stack([z, margins]))[0, 1]) > 0.7
    turned = scores_of(duo, [(query, other, one) for query, one, other in TRIPLES])
    assert float(torch.corrcoef(torch.stack([z, -turned]))[0, 1]) > 0.9


def test_units_that_others_can_stand_in_for_go_without_a_loss():
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    units = torch.cat([few, few @ torch.randn(6, 40, generator=generator, dtype=torch.float64)], dim=1)
    weights = torch.randn(46, 5, generator=generator, dtype=torch.float64)
    kept, fitted = choose_units(units.T @ units, weights, 6)
    assert len(set(kept.tolist())) == 6
    assert float((units[:, kept] @ fitted - units @ weights).square().mean()) < 1e-4 * float(
        (units @ weights).square().mean()
    )


def test_a_pruned_encoder_says_nearly_the_same():
    encoder = shallow_encoder()
    before = embed(encoder, DOCS)
    prune_units(encoder, [inputs for _, inputs in encoder_inputs(TOKENIZER, QUERIES + DOCS)], 512)
    assert encoder.encoder.layer[0].intermediate.dense.weight.shape == (512, 384)
    cosines = (before * embed(encoder, DOCS)).sum(dim=1)
    assert float(cosines.min()) > 0.95

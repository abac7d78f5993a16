"""The recipe of the embedded pair: a bi-encoder's weights do in a cross-encoder what they are wired
to do.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import BertForSequenceClassification

from beamrank.demo.collection import demo_questions, stdlib_docs
from beamrank.ranking.input_layout import InputLimits
from experiments.embedded_pair.bi_encoder import encoder_inputs, load_encoder
from experiments.embedded_pair.wiring.layer_distillation import distil_layers, state_loss
from experiments.embedded_pair.wiring.make_duo import make_duo
from experiments.embedded_pair.wiring.make_mono import (
    Example,
    make_mono,
    principal_axes,
    wire_apart,
)
from experiments.embedded_pair.wiring.pruning import choose_units, prune_units
from experiments.embedded_pair.wiring.segment_marks import (
    layers_of,
    outputs_of,
    shape_of,
    size_marks,
)
from experiments.embedded_pair.wiring.shared_words import (
    dims_of,
    rarities,
    read_number,
    shared_rarity,
)
from models.checkpoints.sources import locate
from models.tokenizers.bert import load_bert
from models.training.data.groups import InputEncoder
from models.training.tasks import log_odds
from tests.support.checkpoints import MINILM
from tests.support.progress import RecordedProgress

pytestmark = pytest.mark.slow

QUERIES = [topic.text for topic in demo_questions()[:6]]
DOCS = [doc.text for doc in stdlib_docs()[:6000:750]]
PAIRS = [(query, doc) for query in QUERIES for doc in DOCS]
TRIPLES = [
    (query, one, other)
    for query in QUERIES
    for one, other in zip(DOCS, DOCS[1:] + DOCS[:1], strict=True)
]
LENGTH = 128
TOKENIZER = load_bert(str(MINILM))
EDGES = (TOKENIZER.special.cls_id, TOKENIZER.special.sep_id)
ENCODER = InputEncoder(TOKENIZER, InputLimits("original", 34, LENGTH), 1 << 20)


def bi_encoder():
    return load_encoder(str(MINILM))


def batch_of(inputs):
    """All inputs in one batch, in their order."""
    (batch,) = ENCODER.batches(inputs)
    order = np.argsort(batch.rows)
    return {name: tensor[order] for name, tensor in batch.tensors.items()}


def embed(encoder, texts):
    vectors = torch.empty(len(texts), encoder.config.hidden_size)
    for rows, inputs in encoder_inputs(TOKENIZER, texts):
        with torch.inference_mode():
            hidden = encoder(**inputs).last_hidden_state
        vectors[rows] = F.normalize(
            (hidden * inputs["attention_mask"].unsqueeze(-1)).sum(dim=1), dim=-1
        )
    return vectors


def rarity():
    return torch.from_numpy(rarities(TOKENIZER.encode(QUERIES + DOCS, 64).ids.to_pylist(), 30522))


def shared_words():
    """Counted by hand: the idf of the query's words that occur in the doc, float[pairs]."""
    texts, idf = [*QUERIES, *DOCS], rarity()
    ids = dict(zip(texts, TOKENIZER.encode(texts, LENGTH).ids.to_pylist(), strict=True))
    docs = [ids[doc][: LENGTH - 3 - len(ids[query])] for query, doc in PAIRS]
    words = [
        [word for word in ids[query] if word in doc]
        for (query, _), doc in zip(PAIRS, docs, strict=True)
    ]
    return torch.tensor([sum(float(idf[word]) for word in each) for each in words])


def example(share_of_words):
    """All pairs, to be scored by the cosine and a share of the shared words."""
    queries, docs = (embed(bi_encoder(), list(texts)) for texts in zip(*PAIRS, strict=True))
    scores = 20 * (queries * docs).sum(dim=1) + share_of_words * shared_words()
    return Example(batch_of(PAIRS), torch.arange(len(PAIRS)) // len(DOCS), scores)


def wired(share_of_words):
    generator = torch.Generator().manual_seed(3)
    encoder = bi_encoder()
    axes = principal_axes(embed(encoder, QUERIES * 20 + DOCS * 20), (128, 64), generator)
    return make_mono(
        encoder, axes, rarity(), EDGES, batch_of(PAIRS[::3]), [example(share_of_words)], generator
    )


@pytest.fixture(scope="module")
def mono():
    return wired(0.0)


def sums_of_words(mono, inputs, layer=3):
    """The sum over the shared words and bigrams that a mono finds, float[inputs]."""
    states = outputs_of(mono, mono.bert.encoder.layer[layer], batch_of(inputs))
    return read_number(states[:, 0], dims_of(shape_of(mono)).total)


@torch.inference_mode()
def scores_of(model, inputs):
    return log_odds(model(**batch_of(inputs)).logits)


def agreement(scores, others):
    """The mean correlation within a query."""
    tables = [each.view(len(QUERIES), len(DOCS)) for each in (scores, others)]
    one, other = (F.normalize(table - table.mean(dim=1, keepdim=True), dim=1) for table in tables)
    return float((one * other).sum(dim=1).mean())


def test_wired_mono_ranks_as_cosine_and_words(mono):
    cosine, with_words = example(0.0).scores, example(10.0).scores
    assert agreement(scores_of(mono, PAIRS), cosine) > 0.9
    found = agreement(scores_of(wired(10.0), PAIRS), with_words)
    assert found > 0.8
    assert found > agreement(cosine, with_words) + 0.02


def test_wired_mono_sums_shared_words_in_every_dtype(mono):
    wanted = shared_words()
    assert torch.allclose(shared_rarity(batch_of(PAIRS), rarity(), EDGES), wanted)
    assert agreement(sums_of_words(mono, PAIRS), wanted) > 0.8
    for dtype in (torch.float16, torch.bfloat16):
        half = copy.deepcopy(mono).to(dtype)
        # Products are in half precision too, as float16 on some GPUs: a value too large for it
        # would be NaN here.
        half.set_attn_implementation("eager")
        assert agreement(sums_of_words(mono, PAIRS), sums_of_words(half, PAIRS).float()) > 0.99


def test_wired_words_weigh_the_same_in_every_query(mono):
    sums, wanted = (
        table - table.mean(dim=1, keepdim=True)
        for table in (
            each.view(len(QUERIES), len(DOCS))
            for each in (sums_of_words(mono, PAIRS, layer=5), shared_words())
        )
    )
    weights = (sums * wanted).sum(dim=1) / wanted.square().sum(dim=1)
    assert float(weights.std() / weights.mean()) < 0.25


@pytest.mark.parametrize(("one", "other"), [("solar", "storms"), ("compass", "needles")])
def test_wired_bigram_counts_half_as_much_as_its_word(mono, one, other):
    query = "how do solar storms disturb compass needles"
    docs = [
        f"{words}, which the old sailors of the north wrote about in their letters, and often so."
        for words in (f"{one} and a boat", f"{other} and a {one}", f"a {one} {other} and")
    ]
    without, apart, together = sums_of_words(mono, [(query, doc) for doc in docs]).tolist()
    assert (together - apart) / (apart - without) == pytest.approx(0.5, abs=0.15)


def test_wired_segments_are_read_apart(mono):
    own = slice(0, shape_of(mono).own)
    one, other = batch_of([(QUERIES[0], DOCS[0])]), batch_of([(QUERIES[0], DOCS[1])])
    query = 1 + one["input_ids"][0].tolist().index(TOKENIZER.special.sep_id)

    def change(layer):
        states = (outputs_of(mono, layer, inputs)[:, 1:query, own] for inputs in (one, other))
        return float(torch.sub(*states).abs().max())

    assert change(mono.bert.encoder.layer[2]) < 1e-2
    assert change(mono.bert.encoder.layer[6].attention.output.LayerNorm) > 0.1
    states = outputs_of(mono, mono.bert.encoder.layer[1], batch_of(PAIRS))[:, 0, own]
    assert float((states - states[0]).abs().max()) < 1e-3
    inputs = batch_of([(QUERIES[0], doc) for doc in DOCS])
    of_doc = (inputs["token_type_ids"] == 1).unsqueeze(-1)
    states = outputs_of(mono, mono.bert.encoder.layer[5], inputs)[..., own]
    cosines = (F.normalize((states * of_doc).sum(dim=1), dim=1) * embed(bi_encoder(), DOCS)).sum(
        dim=1
    )
    # Not 1: some docs are truncated here, and all have other positions.
    assert float(cosines.mean()) > 0.94
    assert float(cosines.min()) > 0.85


def test_wired_duo_prefers_what_mono_scores_higher(mono):
    firsts, seconds = (
        scores_of(mono, [(each[0], each[place]) for each in TRIPLES]) for place in (1, 2)
    )
    margins = firsts - seconds
    duo = make_duo(
        mono, TOKENIZER.special.cls_id, batch_of(TRIPLES[::3]), [batch_of(TRIPLES)], margins
    )
    z = scores_of(duo, TRIPLES)
    assert float(torch.corrcoef(torch.stack([z, margins]))[0, 1]) > 0.7
    turned = scores_of(duo, [(query, other, one) for query, one, other in TRIPLES])
    assert float(torch.corrcoef(torch.stack([z, -turned]))[0, 1]) > 0.9


@pytest.mark.parametrize(("kind", "inputs"), [("mono", PAIRS), ("duo", TRIPLES)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_embedded_pair_ranks_the_same_in_half_precision(kind, inputs, dtype):
    folder, _ = locate(f"embedded:{kind}")
    whole, half = (
        BertForSequenceClassification.from_pretrained(folder, dtype=each)
        for each in (torch.float32, dtype)
    )
    assert agreement(scores_of(whole, inputs), scores_of(half, inputs)) > 0.99


def test_pruning_drops_redundant_units_and_keeps_embeddings():
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    units = torch.cat(
        [few, few @ torch.randn(6, 40, generator=generator, dtype=torch.float64)], dim=1
    )
    weights = torch.randn(46, 5, generator=generator, dtype=torch.float64)
    kept, fitted = choose_units(units.T @ units, weights, 6)
    assert len(set(kept.tolist())) == 6
    error = float((units[:, kept] @ fitted - units @ weights).square().mean())
    assert error < 1e-4 * float((units @ weights).square().mean())
    encoder = bi_encoder()
    encoder.encoder.layer = encoder.encoder.layer[:3]
    before = embed(encoder, DOCS)
    prune_units(encoder, [inputs for _, inputs in encoder_inputs(TOKENIZER, QUERIES + DOCS)], 512)
    assert encoder.encoder.layer[0].intermediate.dense.weight.shape == (512, 384)
    assert float((before * embed(encoder, DOCS)).sum(dim=1).min()) > 0.95


def test_distillation_repairs_damaged_layers():
    encoder, inputs, told = bi_encoder(), batch_of(PAIRS[:8]), RecordedProgress()
    damaged = bi_encoder()
    for layer in layers_of(damaged):
        layer.output.dense.weight.data[:, ::3] = 0.0
    model, shape = wire_apart(damaged, TOKENIZER.special.cls_id)
    for norm in model.modules():
        if isinstance(norm, torch.nn.LayerNorm):
            norm.weight.data[shape.words] = 0.0
    size_marks(model, shape, inputs, encoder.config.num_hidden_layers)
    before = copy.deepcopy(model)
    distil_layers(model, shape, encoder, [inputs] * 10, torch.float32, told)
    assert [each[:2] for each in told.updates] == [(step, 10) for step in range(1, 11)]
    with torch.no_grad():
        first, last = (float(state_loss(each, shape, encoder, inputs)) for each in (before, model))
    assert last < first / 2
    after, added, changed = dict(model.named_parameters()), slice(shape.own, None), 0
    for name, old in before.named_parameters():
        changed += not torch.equal(old, after[name])
        if any(
            part in name
            for part in ("embeddings", "LayerNorm", "query.w", "key.w", "value.w", "intermediate")
        ):
            kept = (
                slice(0, 0)
                if name.endswith(("query.bias", "key.bias", "intermediate.dense.bias"))
                else added
            )
            assert torch.equal(old[..., kept], after[name][..., kept]), name
    assert changed > len(after) / 2
    words = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(dict(before.named_parameters())[words], after[words])

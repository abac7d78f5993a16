import copy
import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import BertForSequenceClassification

from beamrank.demo.collection import demo_topics, stdlib_docs
from beamrank.errors import ConfigError
from beamrank.ranking.input_layout import InputLimits
from experiments.embedded_pair.assemble import Example, assemble_mono, principal_axes
from experiments.embedded_pair.beginning import check_wired, make_examples
from experiments.embedded_pair.contrast import make_duo
from experiments.embedded_pair.distil import TEMPERATURE
from experiments.embedded_pair.marks import outputs_of, shape_of, train_last
from experiments.embedded_pair.pruning import choose_units, prune_units
from experiments.embedded_pair.teacher import embed_texts, encoder_inputs, load_encoder
from experiments.embedded_pair.words import dims_of, has_words, rarities, read_number, shared_rarity
from models.checkpoints.sources import locate
from models.tokenizer.bert import load_tokenizer
from models.training.data.encoding import InputEncoder
from models.training.data.examples import Group
from models.training.loop.losses import log_odds
from tests.support.bert import MINILM
from tests.support.training import save_start

pytestmark = pytest.mark.slow

QUERIES = [topic.text for topic in demo_topics()[:6]]
DOCS = [doc.text for doc in stdlib_docs()[:6000:750]]
PAIRS = [(query, doc) for query in QUERIES for doc in DOCS]
TRIPLES = [(query, one, other) for query in QUERIES for one, other in zip(DOCS, DOCS[1:] + DOCS[:1], strict=True)]
LENGTH = 128
TOKENIZER = load_tokenizer(str(MINILM))


def bi_encoder():
    return load_encoder(str(MINILM))


def batch_of(inputs):
    """All inputs in one batch, in their order."""
    encoder = InputEncoder(TOKENIZER, InputLimits("original", 34, LENGTH), 1 << 20)
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


def rarity():
    return torch.from_numpy(rarities(TOKENIZER.encode(QUERIES + DOCS, 64).ids.to_pylist(), 30522))


def example(encoder, share_of_words=0.0):
    """All pairs, and a teacher that is the cosine, with a share of words in both."""
    queries, docs = (embed(encoder, list(texts)) for texts in zip(*PAIRS, strict=True))
    numbers = torch.arange(len(PAIRS)) // len(DOCS)
    scores = 20 * (queries * docs).sum(dim=1) + share_of_words * shared_words()
    return Example(batch_of(PAIRS), numbers, scores)


def shared_words():
    """Counted by hand: of the query's words, the idf of those that stand in the doc, float[pairs]."""
    texts, idf = [*QUERIES, *DOCS], rarity()
    ids = dict(zip(texts, TOKENIZER.encode(texts, LENGTH).ids.to_pylist(), strict=True))
    docs = [ids[doc][: LENGTH - 3 - len(ids[query])] for query, doc in PAIRS]
    words = [[word for word in ids[query] if word in doc] for (query, _), doc in zip(PAIRS, docs, strict=True)]
    return torch.tensor([sum(float(idf[word]) for word in each) for each in words])


def test_words_in_common_are_counted_as_by_hand():
    edges = (TOKENIZER.cls_id, TOKENIZER.sep_id)
    assert torch.allclose(shared_rarity(batch_of(PAIRS), rarity(), edges), shared_words())


def test_what_mono_is_to_score_is_the_cosine_and_a_share_of_words():
    encoder = InputEncoder(TOKENIZER, InputLimits("original", 34, LENGTH), 1 << 20)
    groups = [Group(query, tuple(DOCS[:4]), None) for query in QUERIES]
    edges, embed_all = (TOKENIZER.cls_id, TOKENIZER.sep_id), functools.partial(embed_texts, str(MINILM))
    (made,) = make_examples(groups, encoder, embed_all, rarity(), edges)
    (batch,) = encoder.batches([(group.query, doc) for group in groups for doc in group.docs])
    queries, docs = (torch.from_numpy(embed_all(texts)) for texts in (QUERIES, DOCS[:4]))
    of_words = made.scores / TEMPERATURE - (queries @ docs.T).flatten()[batch.rows]
    shared = shared_rarity(made.inputs, rarity(), edges)
    assert made.groups.tolist() == (batch.rows // 4).tolist()
    assert float(shared.max()) > 1
    assert torch.allclose(of_words, 0.2 * shared, atol=1e-5)


def assembled(share_of_words=0.0):
    generator = torch.Generator().manual_seed(3)
    encoder = bi_encoder()
    axes = principal_axes(embed(encoder, QUERIES * 20 + DOCS * 20), (128, 64), generator)
    edges = (TOKENIZER.cls_id, TOKENIZER.sep_id)
    examples = [example(encoder, share_of_words)]
    return assemble_mono(encoder, axes, rarity(), edges, batch_of(PAIRS[::3]), examples, generator)


@pytest.fixture(scope="module")
def mono():
    return assembled()


def words_of(mono, inputs):
    """What was found in the doc of the query's words and phrases, float[inputs]."""
    states = outputs_of(mono, mono.bert.encoder.layer[3], batch_of(inputs))
    return read_number(states[:, 1], dims_of(shape_of(mono)).total)


@torch.inference_mode()
def scores_of(model, inputs):
    return log_odds(model(**batch_of(inputs)).logits)


def within_queries(scores):
    """Scores of all pairs, less the mean of their query's, and all of one size."""
    table = scores.view(len(QUERIES), len(DOCS))
    return F.normalize(table - table.mean(dim=1, keepdim=True), dim=1)


def agreement(scores, others):
    """The mean correlation within a query."""
    return float((within_queries(scores) * within_queries(others)).sum(dim=1).mean())


def test_before_any_training_mono_ranks_about_as_the_cosine(mono):
    assert agreement(scores_of(mono, PAIRS), example(bi_encoder()).scores) > 0.9


def test_shared_words_are_found_and_added_up_over_the_query(mono):
    assert agreement(words_of(mono, PAIRS), shared_words()) > 0.8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_words_are_added_up_alike_in_half_precision(mono, dtype):
    half = copy.deepcopy(mono).to(dtype)
    # Products are half precision too, as float16 on some GPUs: what is too large for it would be NaN here.
    half.set_attn_implementation("eager")
    assert agreement(words_of(mono, PAIRS), words_of(half, PAIRS).float()) > 0.99


@pytest.mark.parametrize(("one", "other"), [("solar", "storms"), ("compass", "needles")])
def test_a_word_that_follows_the_same_word_as_in_the_query_counts_half_as_much_again(mono, one, other):
    query = "how do solar storms disturb compass needles"
    docs = [
        f"{words}, which the old sailors of the north wrote about in their letters, and often so."
        for words in (f"{one} and a boat", f"{other} and a {one}", f"a {one} {other} and")
    ]
    without, apart, together = words_of(mono, [(query, doc) for doc in docs]).tolist()
    assert (together - apart) / (apart - without) == pytest.approx(0.5, abs=0.15)


def test_a_teacher_that_counts_words_too_is_matched():
    wanted = example(bi_encoder(), share_of_words=10.0).scores
    with_words = agreement(scores_of(assembled(share_of_words=10.0), PAIRS), wanted)
    assert with_words > 0.8
    assert with_words > agreement(example(bi_encoder()).scores, wanted) + 0.02


def test_in_the_first_layers_a_query_sees_nothing_of_its_doc_but_words(mono):
    one, other = batch_of([(QUERIES[0], DOCS[0])]), batch_of([(QUERIES[0], DOCS[1])])
    query = 1 + one["input_ids"][0].tolist().index(TOKENIZER.sep_id)
    own = slice(0, shape_of(mono).own)

    def change(layer):
        states = (outputs_of(mono, layer, inputs)[:, 1:query, own] for inputs in (one, other))
        return float(torch.sub(*states).abs().max())

    assert change(mono.bert.encoder.layer[2]) < 1e-2
    assert change(mono.bert.encoder.layer[6].attention.output.LayerNorm) > 0.1


def test_a_doc_is_read_as_the_bi_encoder_reads_it(mono):
    inputs = batch_of([(QUERIES[0], doc) for doc in DOCS])
    of_doc = (inputs["token_type_ids"] == 1).unsqueeze(-1)
    states = outputs_of(mono, mono.bert.encoder.layer[5], inputs)[..., : shape_of(mono).own]
    cosines = (F.normalize((states * of_doc).sum(dim=1), dim=1) * embed(bi_encoder(), DOCS)).sum(dim=1)
    # Not 1: some docs are cut here, and all stand elsewhere.
    assert float(cosines.mean()) > 0.94
    assert float(cosines.min()) > 0.85


def test_what_cls_is_while_marks_are_refreshed_depends_on_nothing(mono):
    states = outputs_of(mono, mono.bert.encoder.layer[1], batch_of(PAIRS))[:, 0, : shape_of(mono).own]
    assert float((states - states[0]).abs().max()) < 1e-3


def test_a_training_changes_what_is_gathered_and_nothing_below(mono):
    trained = copy.deepcopy(mono)
    shape = shape_of(mono)
    train_last(trained, shape)
    trained(**batch_of(PAIRS[:20])).logits.square().sum().backward()
    *lower, last = trained.bert.encoder.layer
    assert all(parameter.grad is None for layer in lower for parameter in layer.parameters())
    key, value = last.attention.self.key.weight.grad, last.attention.self.value.weight.grad
    assert int((value != 0).sum()) == 2 * 192 * shape.own
    assert float(key[shape.head_rows(0), : shape.own].abs().max()) > 0
    assert float(key[shape.all_mark_rows()].abs().max()) == 0
    assert float(key[:, shape.marks].abs().max()) == 0


def test_a_mono_that_was_not_wired_here_is_no_start_of_a_duo(mono, tmp_path):
    assert has_words(mono)
    other = copy.deepcopy(mono)
    other.bert.embeddings.word_embeddings.weight.data[1000, dims_of(shape_of(mono)).word] *= 2
    assert not has_words(other)
    check_wired(locate("embedded:mono")[0])
    for folder in (save_start(tmp_path / "other"), locate("embedded:duo")[0]):
        with pytest.raises(ConfigError, match="no mono that this version wired"):
            check_wired(folder)


def test_before_any_training_duo_prefers_about_what_mono_scores_higher(mono):
    margins = scores_of(mono, [(query, one) for query, one, _ in TRIPLES]) - scores_of(
        mono, [(query, other) for query, _, other in TRIPLES]
    )
    duo = make_duo(mono, TOKENIZER.cls_id, batch_of(TRIPLES[::3]), [batch_of(TRIPLES)], margins)
    assert duo.config.type_vocab_size == 3
    z = scores_of(duo, TRIPLES)
    assert float(torch.corrcoef(torch.stack([z, margins]))[0, 1]) > 0.7
    turned = scores_of(duo, [(query, other, one) for query, one, other in TRIPLES])
    assert float(torch.corrcoef(torch.stack([z, -turned]))[0, 1]) > 0.9


@pytest.mark.parametrize(("kind", "inputs"), [("mono", PAIRS), ("duo", TRIPLES)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_shipped_pair_ranks_the_same_in_half_precision(kind, inputs, dtype):
    folder, _ = locate(f"embedded:{kind}")
    whole, half = (BertForSequenceClassification.from_pretrained(folder, dtype=each) for each in (torch.float32, dtype))
    assert agreement(scores_of(whole, inputs), scores_of(half, inputs)) > 0.99


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
    encoder = bi_encoder()
    encoder.encoder.layer = encoder.encoder.layer[:3]
    before = embed(encoder, DOCS)
    prune_units(encoder, [inputs for _, inputs in encoder_inputs(TOKENIZER, QUERIES + DOCS)], 512)
    assert encoder.encoder.layer[0].intermediate.dense.weight.shape == (512, 384)
    cosines = (before * embed(encoder, DOCS)).sum(dim=1)
    assert float(cosines.min()) > 0.95

"""A bi-encoder that is trained on more questions before mono is wired from it.

The scores are those that mono is wired to give: the cosine, and a share of the idf of the shared
words. So the encoder learns what the words do not tell. The loss is the negative log-likelihood of
a question's passage among the passages and negatives of a batch, which has questions of one
collection. Other texts keep their embeddings: their cosine to the untrained encoder's is in the
loss too.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertModel

from beamrank.notes import Progress
from experiments.embedded_pair.bi_encoder import encoder_inputs, load_encoder
from experiments.embedded_pair.descent import descend
from experiments.embedded_pair.wiring.segment_marks import embeddings_of
from experiments.embedded_pair.wiring.shared_words import WORDS_SHARE, rarities
from models.scoring.backends.torch import resolve_dtype
from models.tokenizers.bert import BertTokenizer, load_bert
from models.training.data.groups import Group

_TEMPERATURE = 20.0
_LEARNING_RATE = 4e-5
_MAX_TOKENS = 160
# A batch is full at this many characters of docs, about 5,000 tokens; of a doc, at most 700 count,
# about as many as are read.
_BATCH_CHARACTERS, _DOC_CHARACTERS = 24_000, 700
_DOCS = 4
# How many texts of each batch keep their embeddings, and the weight of that.
_KEPT_TEXTS, _KEPT_WEIGHT = 20, 10.0


class Batch(NamedTuple):
    """Questions with their docs, and other texts, which keep their embeddings."""

    groups: Sequence[Group]
    kept: Sequence[str]


def tune(
    bi_encoder: str,
    groups: Mapping[str, Sequence[Group]],
    kept: Sequence[str],
    output: Path,
    seed: int,
    progress: Progress,
) -> None:
    """Trains a bi-encoder, a folder of sentence-transformers that pools by the mean, in one pass.

    Args:
        bi_encoder: the folder.
        groups: by the name of their collection; each holds the passage first, then negatives.
        kept: texts of other kinds.
        output: the folder to write to.
        seed: decides the batches.
        progress: receives each step.
    """
    tokenizer, model, untrained = (
        load_bert(bi_encoder),
        load_encoder(bi_encoder),
        load_encoder(bi_encoder),
    )
    embeddings_of(model).word_embeddings.requires_grad_(False)
    # Backward through SDPA takes longer on CPUs (`models.training.session`).
    model.set_attn_implementation("eager")
    docs = sorted({doc for some in groups.values() for group in some for doc in group.docs})
    vocabulary = model.config.vocab_size
    rarity = torch.from_numpy(rarities(_words(tokenizer, docs), vocabulary))

    def loss(batch: Batch) -> Tensor:
        return passage_loss(model, tokenizer, batch.groups, rarity) + _KEPT_WEIGHT * kept_loss(
            model, untrained, tokenizer, batch.kept
        )

    descend(
        [weights for weights in model.parameters() if weights.requires_grad],
        list(make_batches(groups, kept, seed)),
        loss,
        _LEARNING_RATE,
        getattr(torch, resolve_dtype("auto", "cpu")),
        progress,
    )
    shutil.copytree(bi_encoder, output, dirs_exist_ok=True)
    model.save_pretrained(output)


def make_batches(
    groups: Mapping[str, Sequence[Group]], kept: Sequence[str], seed: int
) -> Iterator[Batch]:
    """Yields the groups in batches of one collection, of about the same cost, in random order."""
    rng = np.random.default_rng(seed)
    batches = [batch for some in groups.values() for batch in _cut(some, rng)]
    for number in rng.permutation(len(batches)):
        yield Batch(batches[number], [str(text) for text in rng.choice(kept, _KEPT_TEXTS)])


def passage_loss(
    model: BertModel, tokenizer: BertTokenizer, groups: Sequence[Group], rarity: Tensor
) -> Tensor:
    """-log p of each question's passage among all docs of the groups."""
    queries = [group.query for group in groups]
    docs = list(dict.fromkeys(doc for group in groups for doc in group.docs[:_DOCS]))
    asked, answers = embed(model, tokenizer, queries), embed(model, tokenizer, docs)
    passages = torch.tensor([docs.index(group.docs[0]) for group in groups])
    with torch.autocast("cpu", enabled=False):
        shared = (_holds(tokenizer, queries, rarity) * rarity) @ _holds(tokenizer, docs, rarity).T
        scores = _TEMPERATURE * (asked @ answers.T + WORDS_SHARE * shared)
    return F.cross_entropy(scores, passages)


def kept_loss(
    model: BertModel, untrained: BertModel, tokenizer: BertTokenizer, texts: Sequence[str]
) -> Tensor:
    """The mean distance, 1 - cosine, between the embeddings of two encoders."""
    with torch.no_grad():
        wanted = embed(untrained, tokenizer, texts)
    given = embed(model, tokenizer, texts)
    return 1 - (wanted * given).sum(dim=1).mean()


def embed(model: BertModel, tokenizer: BertTokenizer, texts: Sequence[str]) -> Tensor:
    """Unit vectors, the means of the tokens' states, float[texts, width]."""
    rows, vectors = list[int](), []
    for some, inputs in encoder_inputs(tokenizer, list(texts), _MAX_TOKENS):
        states = model(**inputs).last_hidden_state.float()
        rows += some
        vectors.append(F.normalize((states * inputs["attention_mask"][..., None]).sum(1), dim=1))
    return torch.cat(vectors)[torch.tensor(rows).argsort()]


def _cut(groups: Sequence[Group], rng: np.random.Generator) -> Iterator[list[Group]]:
    batch: list[Group] = []
    characters = 0
    for number in rng.permutation(len(groups)):
        batch.append(groups[number])
        docs = groups[number].docs[:_DOCS]
        characters += sum(min(len(doc), _DOC_CHARACTERS) for doc in docs)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _words(tokenizer: BertTokenizer, texts: Sequence[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer.encode(list(texts), _MAX_TOKENS).ids.to_pylist()
    return ids


def _holds(tokenizer: BertTokenizer, texts: Sequence[str], rarity: Tensor) -> Tensor:
    """float[texts, vocabulary], 1 for each word of a text."""
    held = torch.zeros(len(texts), len(rarity))
    for row, words in enumerate(_words(tokenizer, texts)):
        held[row, words] = 1.0
    return held

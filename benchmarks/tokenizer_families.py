"""Tokenizers of the families beside BERT's, trained on the passages that they are measured on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_TRAINING_TEXTS = 4000
_VOCABULARY = 20_000
_UNIGRAM_VOCABULARY = 8000


def train_families(folder: Path, texts: Sequence[str]) -> dict[str, str]:
    """Trains a tokenizer of each family, and returns its folder by the family's name."""
    found = {}
    for name, train in _FAMILIES.items():
        path = folder / f"tokenizer-{name.replace(' ', '-')}"
        path.mkdir()
        train(texts[:_TRAINING_TEXTS]).save(str(path / "tokenizer.json"))
        found[name] = str(path)
    return found


def _byte_level_bpe(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _unigram(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=_UNIGRAM_VOCABULARY,
        special_tokens=special,
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _wordpiece(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=_VOCABULARY, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


_FAMILIES: dict[str, Callable[[Sequence[str]], Any]] = {
    "byte-level BPE": _byte_level_bpe,
    "Unigram": _unigram,
    "WordPiece with NFC": _wordpiece,
}

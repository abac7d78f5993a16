"""Small tokenizers of every family, trained here and saved by transformers' own classes."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import transformers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from models.tokenizers.library import provide_sentencepiece_format
from tests.models.tokenizers.reference import UNICODE_TEXTS

_ENGLISH = [
    "The quick brown fox jumps over the lazy dog, and the dog's owner doesn't mind at all.",
    "What is the capital of France? Paris is the capital and most populous city of France.",
    "Monoclonal antibodies, 1,234 patients (p < 0.05), e.g. interleukin-6 levels rose 12.5%.",
    "def tokenize(text):\n    return text.split()\n\n\tindented = True",
]
TEXTS = [*_ENGLISH, *UNICODE_TEXTS]
_QWEN_CONTROL = ("<|im_start|>", "<|im_end|>")


def save_tokenizer(family: str, folder: Path, texts: Sequence[str] = TEXTS) -> str:
    """Trains a tokenizer of a family on some texts, and saves it as transformers does."""
    _MAKERS[family](folder, list(texts) * 3).save_pretrained(folder)
    return str(folder)


def _class(name: str) -> Any:
    """A tokenizer of transformers by a name that its annotations may not have."""
    return getattr(transformers, name)


def _wordpiece(name: str) -> Callable[[Path, list[str]], Any]:
    def make(folder: Path, texts: list[str]) -> Any:
        return _class(name)(vocab=_wordpieces(texts))

    return make


def _wordpieces(texts: list[str]) -> dict[str, int]:
    """A vocabulary by rules: the library's trainer of WordPiece gives a different one to each
    process.
    """
    normalizer, splitter = (
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )
    words = {
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    }
    characters = sorted({character for word in words for character in word})
    whole = [word for word in sorted(words) if len(word) in (2, 3, 5)]
    ends = sorted({f"##{word[-2:]}" for word in words if len(word) > 3})
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *characters,
        *(f"##{each}" for each in characters),
    ]
    return {piece: number for number, piece in enumerate(dict.fromkeys([*pieces, *whole, *ends]))}


def _byte_level(texts: list[str], special: list[str], pre_tokenizer: Any = None) -> Tokenizer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(texts, trainer)
    return library


def _merges(library: Tokenizer, folder: Path) -> list[tuple[str, ...]]:
    library.model.save(str(folder))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    return [tuple(line.split(" ")) for line in lines]


def _roberta(folder: Path, texts: list[str]) -> Any:
    library = _byte_level(texts, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return _class("RobertaTokenizerFast")(
        vocab=library.get_vocab(), merges=_merges(library, folder)
    )


def _qwen2(folder: Path, texts: list[str]) -> Any:
    split = _class("Qwen2TokenizerFast")().backend_tokenizer.pre_tokenizer
    library = _byte_level(texts, [], split)
    tokenizer = _class("Qwen2TokenizerFast")(
        vocab=library.get_vocab(), merges=_merges(library, folder)
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=True, normalized=False) for token in _QWEN_CONTROL]
    )
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return tokenizer


def _gemma(folder: Path, texts: list[str]) -> Any:
    """BPE over characters, with bytes for others, whose tokens hold one word or line breaks."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    library = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    split = Regex(r"▁?[\w.,]+|\n+|▁+|.")
    library.pre_tokenizer = pre_tokenizers.Split(split, "isolated")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=1100, special_tokens=[*special, *bytes_], show_progress=False
    )
    library.train_from_iterator(texts, trainer)
    model = json.loads(library.to_str())["model"]
    merges = [tuple(each) for each in model["merges"]]
    return _class("GemmaTokenizer")(vocab=model["vocab"], merges=merges)


def _modernbert(folder: Path, texts: list[str]) -> Any:
    """Byte-level BPE with runs of spaces among its added tokens, as GPT-NeoX and OLMo have."""
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    library = _byte_level(texts, special)
    library.normalizer = normalizers.NFC()
    spaces = [AddedToken(" " * count, normalized=True, special=False) for count in range(2, 9)]
    library.add_tokens([*spaces, AddedToken("|||EMAIL_ADDRESS|||", normalized=True, special=False)])
    cls_id, sep_id = (library.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls_id), ("[SEP]", sep_id)],
    )
    # As the published ones do, whose files pad and truncate.
    library.enable_truncation(16)
    library.enable_padding(pad_id=library.token_to_id("[PAD]"), pad_token="[PAD]", length=8)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token=AddedToken("[MASK]", lstrip=True),
    )


def sentencepiece_model(texts: Sequence[str], **special: Any) -> bytes:
    """A SentencePiece Unigram model with the published models' normalization (nmt_nfkc)."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.replace("\0", "") for text in texts if text.strip()]),
        model_writer=written,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **special,
    )
    return written.getvalue()


_SENTENCEPIECE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "xlm-roberta": ("XLMRobertaTokenizerFast", "sentencepiece.bpe.model", {}),
    "camembert": ("CamembertTokenizerFast", "sentencepiece.bpe.model", {}),
    "t5": (
        "T5TokenizerFast",
        "spiece.model",
        {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    ),
    "deberta-v2": (
        "DebertaV2TokenizerFast",
        "spm.model",
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
        | {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    ),
}


def save_sentencepiece(family: str, folder: Path, texts: Sequence[str] = TEXTS) -> str:
    """A folder with a SentencePiece model and no tokenizer.json, as older checkpoints are."""
    name, file, special = _SENTENCEPIECE[family]
    (folder / file).write_bytes(sentencepiece_model(list(texts) * 3, **special))
    (folder / "tokenizer_config.json").write_text(f'{{"tokenizer_class": "{name}"}}')
    return str(folder)


def _from_sentencepiece(family: str) -> Callable[[Path, list[str]], Any]:
    def make(folder: Path, texts: list[str]) -> Any:
        save_sentencepiece(family, folder, texts)
        provide_sentencepiece_format()
        tokenizer = _class(_SENTENCEPIECE[family][0]).from_pretrained(folder)
        (folder / _SENTENCEPIECE[family][1]).unlink()
        return tokenizer

    return make


_MAKERS: dict[str, Callable[[Path, list[str]], Any]] = {
    "bert": _wordpiece("BertTokenizerFast"),
    "electra": _wordpiece("ElectraTokenizerFast"),
    "distilbert": _wordpiece("DistilBertTokenizerFast"),
    "roberta": _roberta,
    "modernbert": _modernbert,
    "qwen2": _qwen2,
    **{family: _from_sentencepiece(family) for family in _SENTENCEPIECE},
}
FAMILIES = tuple(_MAKERS)
# Only for prompts: it lays out no pair.
_MAKERS["gemma"] = _gemma

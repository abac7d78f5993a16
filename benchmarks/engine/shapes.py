"""The models that engines are compared with: random weights of known shapes, and the embedded
mono.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import RerankerKind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EMBEDDED = "embedded:mono"


class Shape(NamedTuple):
    """A model, and how many real inputs take a CPU some seconds; with `layers` 0 it is the embedded
    mono.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    inputs: int
    kind: RerankerKind = "mono"

    def save(self, folder: Path, vocabulary: str | None = None, **keys: Any) -> str:
        """Saves random weights with the vocabulary of a folder, by default the embedded pair's, and
        further keys of the configuration; returns the folder.
        """
        if not self.layers:
            return resolve_checkpoint(EMBEDDED, "mono").folder
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification

        torch.manual_seed(0)
        tokenizer = _tokenizer(
            self.model_type, vocabulary or resolve_checkpoint(EMBEDDED, "mono").folder
        )
        special = {"pad_token_id": tokenizer.pad_token_id, "cls_token_id": tokenizer.cls_token_id}
        special |= {
            "sep_token_id": tokenizer.sep_token_id,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        config = AutoConfig.for_model(
            self.model_type,
            vocab_size=len(tokenizer),
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=3 * self.hidden // 2
            if self.model_type == "modernbert"
            else 4 * self.hidden,
            max_position_embeddings=512 + tokenizer.pad_token_id + 1,
            type_vocab_size=3
            if self.kind == "duo"
            else 1
            if self.model_type == "xlm-roberta"
            else 2,
            **special,
            **keys,
        )
        config.num_labels = 2 if self.kind == "duo" else 1
        classes: Any = AutoModelForSequenceClassification
        classes.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)


def _tokenizer(model_type: str, folder: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder, with the layout of pairs of a family."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    if model_type == "bert":
        return tokenizer
    library = tokenizer.backend_tokenizer
    middle = "[SEP] [SEP]" if model_type == "xlm-roberta" else "[SEP]"
    ids = [(name, library.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    library.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair=f"[CLS] $A {middle} $B [SEP]", special_tokens=ids
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    inputs = ["input_ids", "attention_mask"]
    fast: Any = PreTrainedTokenizerFast
    laid_out: PreTrainedTokenizerBase = fast(
        tokenizer_object=library, model_input_names=inputs, **names
    )
    return laid_out


def count_products(folder: str, kind: RerankerKind) -> int:
    """The number of multiplications of the layers' matrices for one token."""
    architecture: Any = resolve_checkpoint(folder, kind).architecture
    shape = architecture.shape
    widened = shape.inner * (3 if shape.gated else 2)
    return len(shape.attentions) * int(shape.hidden * (4 * shape.hidden + widened))


SHAPES = {
    "embedded mono": Shape("bert", 0, 442, 13, 240),
    "MiniLM-L6": Shape("bert", 6, 384, 12, 300),
    "MiniLM-L12": Shape("bert", 12, 384, 12, 160),
    "BERT-base": Shape("bert", 12, 768, 12, 60),
    "BERT-large": Shape("bert", 24, 1024, 16, 20),
    "XLM-R-base": Shape("xlm-roberta", 12, 768, 12, 60),
    "ModernBERT-base": Shape("modernbert", 22, 768, 12, 40),
    "duo MiniLM-L12": Shape("bert", 12, 384, 12, 80, "duo"),
}

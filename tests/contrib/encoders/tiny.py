"""Tiny random encoders of each kind, as sentence-transformers and PyLate save them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedModel

from tests.support.checkpoints import LETTERS, NARROW

PROMPTS = {"query": "ask ", "document": "tell "}
# Below the lengths of some docs.
MOST_TOKENS = 48


def save_backbone(
    folder: Path, kind: type[PreTrainedModel], vocabulary: Sequence[str] = LETTERS, **config: Any
) -> str:
    """A random BERT, so large that a wrong token changes its vectors."""
    torch.manual_seed(5)
    rows = {"vocab_size": len(vocabulary), "max_position_embeddings": 64}
    model = kind(BertConfig(**{**rows, **NARROW, **config}))
    for name, parameter in model.named_parameters():
        if not name.endswith("LayerNorm.weight"):
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    return str(folder)


def save_dense(folder: Path, **config: Any) -> str:
    """Mean pooling, prompts, cosine."""
    transformer = _transformer(folder, BertModel, config, max_seq_length=MOST_TOKENS)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "mean"), Normalize()]
    return _saved(SentenceTransformer(modules=modules, prompts=PROMPTS), folder)


def save_sparse(folder: Path, **config: Any) -> str:
    """SPLADE, dot product."""
    options = {"transformer_task": "fill-mask", "max_seq_length": MOST_TOKENS}
    transformer = _transformer(folder, BertForMaskedLM, config, **options)
    return _saved(SparseEncoder(modules=[transformer, SpladePooling("max")]), folder)


def save_late(folder: Path, **config: Any) -> str:
    """ColBERT: queries are filled up with [MASK], and docs lose one of the letters."""
    expansion = {"strategy": "fixed", "length": 40, "attend": False}
    options = {"document_length": MOST_TOKENS, "query_expansion": expansion}
    transformer = _transformer(folder, BertModel, config, **options)
    torch.manual_seed(6)
    name, width = "token_embeddings", transformer.get_embedding_dimension()
    modules: list[torch.nn.Module] = [
        transformer,
        Dense(width, 16, False, torch.nn.Identity(), module_input_name=name),
        MultiVectorMask(["e", "##e"]),
        Normalize(module_input_name=name),
    ]
    return _saved(MultiVectorEncoder(modules=modules, prompts=PROMPTS), folder)


def save_routed(folder: Path) -> str:
    """Sparse, with a table of weights in place of a model for queries."""
    options = {"transformer_task": "fill-mask", "max_seq_length": MOST_TOKENS}
    transformer = _transformer(folder, BertForMaskedLM, {}, **options)
    drawn = torch.rand(len(LETTERS), generator=torch.Generator().manual_seed(2))
    tokenizer: Any = transformer.tokenizer
    queries: list[Any] = [SparseStaticEmbedding(tokenizer, drawn)]
    router = Router.for_query_document(queries, [transformer, SpladePooling("max")])
    return _saved(SparseEncoder(modules=[router]), folder)


def _transformer(
    folder: Path, kind: type[PreTrainedModel], config: Mapping[str, Any], **options: Any
) -> Transformer:
    backbone = folder.with_name(f"{folder.name}-backbone")
    return Transformer(save_backbone(backbone, kind, **config), **options)


def _saved(model: Any, folder: Path) -> str:
    model.save_pretrained(str(folder))
    return str(folder)


SAVE: Mapping[str, Callable[..., str]] = {
    "late": save_late,
    "dense": save_dense,
    "sparse": save_sparse,
}

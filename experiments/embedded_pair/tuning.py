"""A bi-encoder that is trained on more questions before mono is wired from it.

A batch has questions of one collection, each with its passage and a negative of BM25. The loss is
the negative log-likelihood of a question's passage among all passages and negatives of the batch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import (
    BatchSamplers,
    MultiDatasetBatchSamplers,
)
from transformers import BertModel

from experiments.embedded_pair.wiring.segment_marks import embeddings_of
from models.scoring.backends.torch import resolve_dtype
from models.training.data.groups import Group

_BATCH_SIZE, _MAX_TOKENS = 32, 200
_LEARNING_RATE, _WARM_UP, _WEIGHT_DECAY = 2e-5, 0.1, 0.01
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tune(bi_encoder: str, groups: Mapping[str, Sequence[Group]], output: Path, seed: int) -> None:
    """Trains a bi-encoder, a folder of sentence-transformers, in one pass over the groups.

    Args:
        bi_encoder: the folder.
        groups: by the name of their collection; each holds the passage first, then a negative.
        output: the folder to write to.
        seed: decides the order of the batches.
    """
    model = SentenceTransformer(
        bi_encoder, device="cpu", local_files_only=True, config_kwargs=_NO_DROPOUT
    )
    model.max_seq_length = _MAX_TOKENS
    encoder = model[0].model
    assert isinstance(encoder, BertModel)
    embeddings_of(encoder).word_embeddings.requires_grad_(False)
    trainer = SentenceTransformerTrainer(
        model,
        _arguments(output, seed),
        DatasetDict({name: _dataset(some) for name, some in groups.items()}),
        loss=MultipleNegativesRankingLoss(model),
    )
    trainer.train()
    model.save_pretrained(str(output))


def _dataset(groups: Sequence[Group]) -> Dataset:
    return Dataset.from_dict(
        {
            "query": [group.query for group in groups],
            "positive": [group.docs[0] for group in groups],
            "negative": [group.docs[1] for group in groups],
        }
    )


def _arguments(output: Path, seed: int) -> SentenceTransformerTrainingArguments:
    return SentenceTransformerTrainingArguments(
        output_dir=str(output),
        num_train_epochs=1,
        per_device_train_batch_size=_BATCH_SIZE,
        learning_rate=_LEARNING_RATE,
        warmup_steps=_WARM_UP,
        weight_decay=_WEIGHT_DECAY,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
        bf16=resolve_dtype("auto", "cpu") == "bfloat16",
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=10,
        seed=seed,
    )

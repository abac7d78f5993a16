"""The model that a training starts from, its forward passes, and the Hugging Face folder that it
writes.
"""

import os
import shutil
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import torch
import transformers
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput
from transformers.utils import logging as transformers_logging

from beamrank.errors import PreflightError
from beamrank.notes import counted, first_few
from models.architectures.encoder.family import check_types
from models.architectures.families import (
    ARCHITECTURES,
    BERT,
    CLASSIFIER,
    bert_shape,
    bert_tensors,
)
from models.architectures.protocol import (
    ModelFiles,
    Shapes,
    check_attention,
    check_labels,
    check_tensors,
    refuse_unread,
)
from models.checkpoints.checkpoint import check_fit
from models.checkpoints.files import (
    CHECKPOINT_FILES,
    CONFIG,
    SAFETENSORS,
    digest_files,
    digest_of,
    read_config,
    tensor_shapes,
)
from models.checkpoints.sources import locate
from models.tokenizers.bert import BertTokenizer, load_bert
from models.tokenizers.files import TOKENIZER_FILES
from models.tokenizers.layout import own_layout
from models.training.config import CHUNKED, ChunksConfig
from models.training.data.pretraining import NOT_PREDICTED

_TYPES = "embeddings.token_type_embeddings.weight"
_NEW = ("classifier.weight", "classifier.bias", "pooler.dense.weight", "pooler.dense.bias", _TYPES)
# Weights that pre-training leaves for other trainings, and heads for other trainings than the
# start's.
_LEARNED_BEFORE = {
    "bert.embeddings.token_type_embeddings.": "table of token types",
    "bert.pooler.": "pooler",
    "cls.predictions.": "head of masked words",
}
_OTHER_HEADS = ("cls.", f"{CLASSIFIER}.")
_OF_MASKED_WORDS = "cls.predictions."
_OF_NEXT_SENTENCE = ("bert.pooler.", "cls.seq_relationship.")
_Model = TypeVar("_Model", bound=PreTrainedModel)
_LABELS = {1: ("relevant",), 2: ("not_relevant", "relevant")}


class BertForPreTraining(transformers.BertForPreTraining):  # type: ignore[no-untyped-call]
    """Has the name that is written to config.json."""

    def forward(self, hidden: Tensor | None = None, **inputs: Tensor) -> BertForPreTrainingOutput:
        """Predicts the wordpieces that `hidden`, int64[b, n], holds: the vocabulary is the widest
        layer.
        """
        vectors, pooled = self.bert(**inputs)[:2]
        chosen = vectors if hidden is None else vectors[hidden != NOT_PREDICTED]
        words, next_sentence = self.cls.predictions(chosen), self.cls.seq_relationship(pooled)
        return BertForPreTrainingOutput(
            prediction_logits=words, seq_relationship_logits=next_sentence
        )


class Start:
    """A BERT on this machine, with its tokenizer: an encoder, a classifier, or a configuration for
    random weights.

    Attributes:
        reference: its reference, valid on any machine.
        digest: SHA-256 of its files.
        warnings: about its tokenizer, and about weights that it lacks or that are not used.
        labels: logits of its trained head; None if it has none.
        default_labels: as many labels as its head, if that is one of a re-ranker.
    """

    def __init__(self, reference: str, max_length: int, random_weights: bool = False) -> None:
        """Locates the start and checks it against its tokenizer and the length of the inputs."""
        read = (CONFIG, *TOKENIZER_FILES)
        self.folder, self.reference = locate(
            reference, read if random_weights else CHECKPOINT_FILES
        )
        self._random_weights = random_weights
        config = _read_config(self.folder, self.reference, random_weights)
        self.digest = digest_of(
            digest_files(self.folder, read if random_weights else None), self.folder
        )
        self.tokenizer: BertTokenizer = load_bert(self.folder)
        shapes = {} if random_weights else tensor_shapes(self.folder, self.reference)
        self.labels = next(iter(shapes.get(f"{CLASSIFIER}.weight", ())), None)
        self.default_labels: Literal[1, 2] = 1 if self.labels == 1 else 2
        tokens, document = self.tokenizer, read_config(self.folder, self.reference)
        self._own_warnings = check_fit(
            self.reference, document, config.vocab_size, tokens.vocab_size, tokens.special
        )
        self.warnings = self._own_warnings
        if own_layout(self.folder, self.reference, BERT.layout, reads_types=True) is not None:
            raise PreflightError(
                f"the tokenizer of the model {self.reference} lays a pair out otherwise than "
                "BERT's, as inputs are trained. The trained model would keep its files "
                "(tokenizer_class and model_input_names in tokenizer_config.json, the "
                "post-processor of tokenizer.json) and be scored on other inputs. Give it BERT's: "
                "[CLS] query [SEP] doc [SEP] with token types 0 and 1"
            )
        positions = config.max_position_embeddings
        if max_length > positions:
            raise PreflightError(
                f"the model {self.reference} has {positions} positions and input.max_length is "
                f"{max_length}: set input.max_length to {positions} or less"
            )

    def model(
        self,
        kind: str,
        labels: int,
        dropout: float,
        train_word_embeddings: bool,
        chunks: ChunksConfig | None = None,
    ) -> BertForSequenceClassification:
        """The classifier to train, float32: keeps a head of as many labels, or adds a random one.

        A duo gets a third token type if there are two.
        """
        if labels == self.labels:
            check_labels(
                ModelFiles(self.reference, read_config(self.folder, self.reference)), labels
            )
        configured_duo = read_config(self.folder, self.reference).get("type_vocab_size", 2) > 2
        config = self._configured(labels, dropout)
        architecture: Any = BertForSequenceClassification
        if chunks is not None:
            reader: Any = ARCHITECTURES[CHUNKED]
            architecture, config = reader.trained(config, chunks)
        model: BertForSequenceClassification = self._fitting(architecture, config)
        if kind == "duo" and config.type_vocab_size == 2:
            _add_token_type(model, zero=configured_duo)
        model.bert.embeddings.word_embeddings.requires_grad_(train_word_embeddings)
        return model

    def lines(self, labels: int) -> tuple[str, ...]:
        """Lines to report about a classifier of so many labels."""
        if self.labels is None or self.labels == labels:
            return ()
        keep = f"; labels: {self.labels} keeps it" if self.labels in _LABELS else ""
        return (
            f"the head is new: {self.reference} has {counted(self.labels, 'label')}, not "
            f"{labels}{keep}",
        )

    def _configured(self, labels: int, dropout: float) -> BertConfig:
        config = _read_config(self.folder, self.reference, self._random_weights)
        config.id2label = dict(enumerate(_LABELS[labels]))
        config.label2id = {name: number for number, name in config.id2label.items()}
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        config.classifier_dropout = None
        return config

    def masked_model(
        self,
        dropout: float,
        train_word_embeddings: bool,
        next_sentence: bool = False,
        masked_words: bool = True,
    ) -> BertForPreTraining:
        """BERT with its pre-training heads, float32.

        The head of an objective that is not trained is frozen, and with `next_sentence` the pooler:
        several processes would wait for their gradients.
        """
        model = self._fitting(BertForPreTraining, self._configured(2, dropout))
        for name, parameter in model.named_parameters():
            is_trained = next_sentence or not name.startswith(_OF_NEXT_SENTENCE)
            parameter.requires_grad_(
                is_trained and (masked_words or not name.startswith(_OF_MASKED_WORDS))
            )
        model.bert.embeddings.word_embeddings.requires_grad_(train_word_embeddings)
        return model

    def _fitting(self, architecture: type[_Model], config: BertConfig) -> _Model:
        if self._random_weights:
            return _initialized(architecture(config))
        _silence_transformers()
        model: _Model
        loading: dict[str, Any]
        try:
            model, loading = architecture.from_pretrained(
                self.folder,
                config=config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )  # type: ignore[misc]
        # ImportError: of weights that only another library reads, such as quantized ones.
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise PreflightError(f"cannot load the model {self.reference}: {error}") from error
        self.warnings = (*self._own_warnings, *_weight_warnings(self.reference, loading))
        return model


def _silence_transformers() -> None:
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def save_checkpoint(model: PreTrainedModel, start_folder: str, folder: str, weights: str) -> None:
    """Writes a folder that transformers loads: configuration, weights of this dtype, the start
    folder's tokenizer.
    """
    _silence_transformers()
    model.save_pretrained(folder, state_dict=_copied(model.state_dict(), getattr(torch, weights)))
    # safetensors writes files that only their owner can read.
    shutil.copymode(os.path.join(folder, CONFIG), os.path.join(folder, SAFETENSORS))
    for name in TOKENIZER_FILES:
        if os.path.exists(source := os.path.join(start_folder, name)):
            shutil.copyfile(source, os.path.join(folder, name))


def _copied(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Copies to the CPU; names that share a tensor share its copy, which is written once."""
    copies: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if tensor.data_ptr() not in copies:
            copies[tensor.data_ptr()] = tensor.detach().to("cpu", dtype)
    return {name: copies[tensor.data_ptr()] for name, tensor in tensors.items()}


def _initialized(model: _Model) -> _Model:
    """Draws weights as BERT's own code does: a truncated normal distribution; biases are 0."""
    deviation = model.config.initializer_range
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    return model


def _read_config(folder: str, reference: str, random_weights: bool) -> BertConfig:
    """The configuration, after its sizes were compared with any weights: transformers allocates any
    size.
    """
    document = read_config(folder, reference)
    # Google's ALBERTs name no type.
    kind = "albert" if "num_hidden_groups" in document else document.get("model_type")
    if kind != "bert":
        raise PreflightError(f"the model {reference} is of the type {kind!r}, not 'bert'")
    files = ModelFiles(
        reference, document, {} if random_weights else tensor_shapes(folder, reference)
    )
    check_attention(files)
    sizes = bert_tensors(bert_shape(files, 0), labels=1)
    types = None if random_weights else _check_weights(files, sizes)
    # The training decides how many labels there are; transformers would name these.
    document.pop("num_labels", None)
    try:
        config: BertConfig = BertConfig.from_dict(document)
    # transformers validates some keys, and raises anything for others.
    except Exception as error:
        raise PreflightError(
            f"the {CONFIG} of the model {reference} cannot be used: {error}"
        ) from error
    # As many token types as the weights have: the first duoBERTs promise three over a table of two.
    config.type_vocab_size = types or config.type_vocab_size
    check_types(f"the model {reference}", config.type_vocab_size, (0, 1), adds_type=True)
    return config


def _check_weights(files: ModelFiles, sizes: Shapes) -> int | None:
    """Compares the encoder's weights with the sizes of a configuration; returns the token types
    that they have.
    """
    tensors = files.tensors
    prefix = "" if f"{BERT.names['words']}.weight" in tensors else BERT.prefix
    expected = {
        name.removeprefix("" if prefix else BERT.prefix): size for name, size in sizes.items()
    }
    check_tensors(files, {name: size for name, size in expected.items() if not name.endswith(_NEW)})
    refuse_unread(files, expected, BERT.roots(prefix))
    return next(iter(tensors.get(f"{prefix}{_TYPES}", ())), None)


def _weight_warnings(reference: str, loading: Mapping[str, Any]) -> list[str]:
    """Lines about parts of a loaded model that are new without being a head of the task, and
    tensors not in it.
    """
    new = [
        f"the {what} is new: {reference} has none"
        for prefix, what in _LEARNED_BEFORE.items()
        if any(name.startswith(prefix) for name in loading["missing_keys"])
    ]
    unused = sorted(
        name for name in loading["unexpected_keys"] if not name.startswith(_OTHER_HEADS)
    )
    if not unused:
        return new
    return [
        *new,
        f"tensors of {reference} that are not used: {len(unused):,} ({first_few(unused)})",
    ]


def _add_token_type(model: BertForSequenceClassification, zero: bool) -> None:
    """Adds a third token type to a model with two.

    If the configuration promises three, the model is one of the first duoBERTs, to which TensorFlow
    gave zeros. Otherwise it is a mono. A plain copy of its second type would leave only positions
    to distinguish the docs; with a random vector of length 1 added, z_ij averaged over j orders
    docs nearly as mono does before training.
    """
    rows = model.bert.embeddings.token_type_embeddings.weight.detach()
    offset = torch.nn.functional.normalize(torch.randn(1, rows.shape[1]))
    third = torch.zeros_like(offset) if zero else rows[1:2] + offset
    table = nn.Embedding(3, rows.shape[1])
    table.weight.data = torch.cat([rows, third])
    model.bert.embeddings.token_type_embeddings = table
    model.config.type_vocab_size = 3

"""The architectures of language models, by their class, which entry points name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from contrib.generators.prompts import MXBAI, QWEN3, T5, Prompt, PromptTokenizer
from models.architectures.protocol import ModelFiles
from models.architectures.transformers import (
    TransformersModel,
    TransformersScorer,
    checked_tensors,
    count_products,
    load_model,
    make_skeleton,
    slower,
)
from models.tokenizers.library import load_with_transformers

# T5 has relative positions, without a table that ends.
_T5_POSITIONS = 1 << 14


@dataclass(frozen=True)
class WordModel(TransformersModel):
    """A language model.

    Attributes:
        class_name: of transformers.
        word_map: the tensor of the map to words.
        words: the ids of the words for not relevant and relevant: the only rows of the map that are
            computed.
        decodes: whether an answer comes from a decoder beside the encoder.
    """

    class_name: str
    word_map: str
    words: tuple[int, int]
    decodes: bool

    @property
    def own_layout(self) -> InputTemplate:
        """The ids of the prompt, which decide scores."""
        return self.layout

    def build(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> nn.Module:
        """See `Architecture.build`."""
        model = load_model(
            self.config, lambda _: getattr(transformers, self.class_name), weights, dtype
        )
        return WordScorer(model, weights[self.word_map][list(self.words)], self.decodes)


class WordScorer(TransformersScorer):
    """The logits of two words after a prompt."""

    def __init__(self, model: Any, rows: Tensor, decodes: bool) -> None:
        """Replaces the map to all words by one to the two that count, whose rows are
        float32[2, d].
        """
        head = nn.Linear(rows.shape[1], 2, bias=False)
        head.load_state_dict({"weight": rows})
        model.set_output_embeddings(head)
        super().__init__(model, head)
        self._decodes = decodes

    def logits(self, ids: Tensor, types: Tensor) -> Tensor:  # noqa: ARG002
        given: dict[str, Any] = {"logits_to_keep": 1}
        if self._decodes:
            given = {
                "decoder_input_ids": ids.new_full(
                    (len(ids), 1), self.model.config.decoder_start_token_id
                )
            }
        logits: Tensor = self.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **given
        ).logits
        return logits[:, -1]


@dataclass(frozen=True)
class Generator:
    """A class of language models: an `ArchitectureReader`.

    Attributes:
        name: of the class of transformers.
        prompts: by the number of texts of an input.
        words: pairs of words for not relevant and relevant; the first pair that the vocabulary has
            counts.
        control: special tokens of the prompts.
        decodes: whether an answer comes from a decoder beside the encoder.
        named: the words of published checkpoints that differ, by Hugging Face id.
    """

    name: str
    prompts: Mapping[int, Prompt]
    words: Sequence[tuple[str, str]]
    control: Sequence[str]
    decodes: bool = False
    named: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def reads_instruction(self) -> bool:
        """Whether the prompt holds an instruction."""
        return bool(self.prompts[SEGMENTS["mono"]].instruction)

    def load_tokenizer(self, folder: str) -> PromptTokenizer:
        """The tokenizer of a local folder; what the prompts join to texts is the same for mono and
        duo.
        """
        return PromptTokenizer(folder, self.prompts[SEGMENTS["mono"]])

    def __call__(self, files: ModelFiles, segments: int) -> WordModel:
        """Checks a checkpoint; raises PreflightError where it cannot be scored."""
        if segments not in self.prompts:
            raise PreflightError(
                f"{files} is a {self.name}, whose prompt has one doc: it is for mono alone"
            )
        skeleton = make_skeleton(
            files, self._find_class, *(("decoder_input_ids",) if self.decodes else ())
        )
        words, ids = self._find_words(files)
        word_map = skeleton.get_output_embeddings().weight
        rows = skeleton.get_input_embeddings().num_embeddings
        start = skeleton.config.decoder_start_token_id if self.decodes else 0
        if not isinstance(start, int) or not 0 <= start < rows:
            raise PreflightError(
                f"config.json of {files} has decoder_start_token_id {start!r:.100}, which must be "
                "the id of the token that the answer starts after"
            )
        return WordModel(
            config=files.config,
            layout=self.prompts[segments].template(files.folder, files.instruction),
            num_labels=2,
            positions=_T5_POSITIONS if self.decodes else skeleton.config.max_position_embeddings,
            vocab_size=rows,
            token_cost=count_products(skeleton),
            tensors=checked_tensors(skeleton, files),
            warnings=(
                slower(files),
                f"the score of {files.reference} is the logit of {words[1]!r} minus that of "
                f"{words[0]!r} after the prompt of docs/reference/model-inputs.md: a {self.name} "
                "that was not trained on it scores badly",
            ),
            class_name=self.name,
            word_map=next(name for name, each in skeleton.named_parameters() if each is word_map),
            words=ids,
            decodes=self.decodes,
        )

    def _find_class(self, config: Any) -> Any:
        found = getattr(transformers, self.name)
        if not isinstance(config, found.config_class):
            raise ValueError(
                f"it names the class {self.name} and the model_type {config.model_type!r}"
            )
        return found

    def _find_words(self, files: ModelFiles) -> tuple[tuple[str, str], tuple[int, int]]:
        vocabulary: Mapping[str, int] = load_with_transformers(
            files.folder, files.reference
        ).get_vocab()
        named = self.named.get(files.reference.partition("@")[0])
        choices = [named] if named else self.words
        found = [words for words in choices if all(word in vocabulary for word in words)]
        missing = [token for token in self.control if token not in vocabulary]
        if missing or not found:
            lacks = missing or [word for words in choices for word in words]
            raise PreflightError(
                f"the tokenizer of {files} lacks {', '.join(map(repr, lacks))}, which the prompt "
                "and the answers of its model need: give the checkpoint its own tokenizer"
            )
        negative, positive = found[0]
        return found[0], (vocabulary[negative], vocabulary[positive])


_FALSE_TRUE = ("▁false", "▁true")
_CHAT = ("<|im_start|>", "<|im_end|>")
# Portuguese T5 answers in Portuguese; the vocabulary of the English one lacks these words.
MONO_T5 = Generator(
    "T5ForConditionalGeneration", T5, (("▁não", "▁sim"), _FALSE_TRUE), ("</s>",), decodes=True
)
MONO_MT5 = Generator(
    "MT5ForConditionalGeneration",
    T5,
    (("▁no", "▁yes"),),
    ("</s>",),
    decodes=True,
    named={
        "unicamp-dl/mt5-3B-mmarco-en-pt": ("▁", "▁true"),
        "unicamp-dl/mt5-13b-mmarco-100k": _FALSE_TRUE,
    },
)
MXBAI_V2 = Generator("Qwen2ForCausalLM", MXBAI, (("0", "1"),), _CHAT)
QWEN3_RERANKER = Generator("Qwen3ForCausalLM", QWEN3, (("no", "yes"),), _CHAT)

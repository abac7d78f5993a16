"""The architectures of language models, by their class, which entry points name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import transformers
from pydantic import Field
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from beamrank.errors import PreflightError
from beamrank.storage.documents import usable
from contrib.generators.published import Published, find_published
from models.architectures.kernels.attention import TokenRows
from models.architectures.protocol import ELSEWHERE, ModelFiles, check_tensors
from models.architectures.transformers import (
    TransformersModel,
    TransformersScorer,
    checked_tensors,
    load_model,
    make_skeleton,
    slower,
)
from models.tokenizers.library import load_with_transformers
from models.tokenizers.prompts import Prompt, PromptTemplate

# T5 has relative positions, without a table that ends.
_T5_POSITIONS = 1 << 14


@dataclass(frozen=True)
class WordModel(TransformersModel):
    """A language model.

    Attributes:
        class_name: of transformers.
        word_map: the tensor of the map to words.
        words: the id of the word for relevant, after that for not relevant if there is one: the
            only rows of the map that are computed.
        decodes: whether an answer comes from a decoder beside the encoder.
        shares_prefix: whether what is before the last text is computed once for all inputs.
    """

    class_name: str
    word_map: str
    words: tuple[int, ...]
    decodes: bool
    shares_prefix: bool

    @property
    def decides(self) -> tuple[int | str, ...]:
        """What the digest covers beside files and prompt."""
        return (*self.words, *(("shared",) if self.shares_prefix else ()))

    def build(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> nn.Module:
        """See `Architecture.build`."""
        model = load_model(
            self.config, lambda _: getattr(transformers, self.class_name), weights, dtype
        )
        return WordScorer(model, weights[self.word_map][list(self.words)], self)


class WordScorer(TransformersScorer):
    """The logits of one word or two after a prompt."""

    def __init__(self, model: Any, rows: Tensor, described: WordModel) -> None:
        """Replaces the map to all words by one to those that count: float32[n, d] rows."""
        head = nn.Linear(rows.shape[1], len(rows), bias=False)
        head.load_state_dict({"weight": rows})
        model.set_output_embeddings(head)
        super().__init__(model, head)
        self._described = described

    def forward(self, rows: TokenRows, **given: Any) -> Tensor:
        """Computes what the inputs share before them."""
        if self._described.shares_prefix and rows.prefix > 0:
            ids = rows.token_ids[None, : rows.prefix].long()
            given = {"prefix": Cache(layer_class_to_replicate=_PrefixLayer)}
            self.logits(ids, ids, **given)
        return super().forward(rows, **given)

    def logits(self, ids: Tensor, types: Tensor, prefix: Cache | None = None) -> Tensor:  # noqa: ARG002
        given: dict[str, Any] = {"logits_to_keep": 1}
        if self._described.decodes:
            given = {
                "decoder_input_ids": ids.new_full(
                    (len(ids), 1), self.model.config.decoder_start_token_id
                )
            }
        if prefix is not None:
            given |= {"past_key_values": prefix}
        logits: Tensor = self.model(
            input_ids=ids[:, prefix.get_seq_length() :] if prefix is not None else ids,
            attention_mask=torch.ones_like(ids),
            use_cache=prefix is not None,
            **given,
        ).logits
        return logits[:, -1]


class _PrefixLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The keys and values of a prefix, which inputs read and do not extend."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            return super().update(key_states, value_states)
        kept: Any = (self.keys, self.values)
        prefix_keys, prefix_values = (part.expand(len(key_states), -1, -1, -1) for part in kept)
        return (
            torch.cat([prefix_keys, key_states], dim=-2),
            torch.cat([prefix_values, value_states], dim=-2),
        )


@dataclass(frozen=True)
class LogitScore:
    """The config.json of the module that takes a score from the logits of one word or two."""

    true_token_id: Annotated[int, Field(ge=0)]
    false_token_id: Annotated[int, Field(ge=0)] | None = None
    module_input_name: Literal["causal_logits"] = "causal_logits"


@dataclass(frozen=True)
class Generator:
    """A class of language models: an `ArchitectureReader`.

    What a checkpoint says of its prompt and its answers decides, unless the user gives others; then
    what is published of its Hugging Face id.

    Attributes:
        name: of the class of transformers.
        decodes: whether an answer comes from a decoder beside the encoder.
    """

    name: str
    decodes: bool = False

    options = ("prompt", "answers", "prefix")

    def __call__(self, files: ModelFiles, segments: int) -> WordModel:
        """Checks a checkpoint; raises PreflightError where it cannot be scored."""
        skeleton = make_skeleton(
            files, self._find_class, *(("decoder_input_ids",) if self.decodes else ())
        )
        words_of = skeleton.get_output_embeddings().weight
        every = skeleton.named_parameters(remove_duplicate=False)
        maps = [name for name, tensor in every if tensor is words_of]
        # A map of the checkpoint's own stands where the configuration ties it to the embeddings,
        # which transformers 5 writes for every T5.
        word_map = next((name for name in reversed(maps) if name in files.tensors), maps[0])
        tensors = checked_tensors(skeleton, files) | {word_map: tuple(words_of.shape)}
        check_tensors(files, tensors)
        rows = skeleton.get_input_embeddings().num_embeddings
        start = skeleton.config.decoder_start_token_id if self.decodes else 0
        if not isinstance(start, int) or not 0 <= start < rows:
            raise PreflightError(
                f"config.json of {files} has decoder_start_token_id {start!r:.100}, which must be "
                "the id of the token that the answer starts after"
            )
        shares = files.options.get("prefix") == "shared"
        if shares and (self.decodes or not getattr(skeleton.config, "is_causal", True)):
            raise PreflightError(
                f"{files} is a {self.name} that reads both ways: each doc changes what is computed "
                "of the prompt before it, so that docs cannot share it. Leave out `prefix`"
            )
        tokenizer = load_with_transformers(files.folder, files.reference)
        words = self._words(files, tokenizer)
        if max(words) >= rows:
            raise PreflightError(
                f"{files} answers with the token {max(words)}, and its model has {rows}: give it "
                "the tokenizer and the modules of its model"
            )
        prompt = self._prompt(files, segments, tokenizer)
        shown = [repr(tokenizer.convert_ids_to_tokens(word)) for word in reversed(words)]
        return WordModel(
            config=files.config,
            layout=prompt.template,
            prompt=prompt,
            num_labels=len(words),
            positions=_T5_POSITIONS if self.decodes else skeleton.config.max_position_embeddings,
            vocab_size=rows,
            tensors=tensors,
            warnings=(
                slower(files),
                f"the score of {files.reference} is the logit of {' minus that of '.join(shown)} "
                "after its prompt, which `beamrank doctor --checkpoint` shows",
            ),
            class_name=self.name,
            word_map=word_map,
            words=words,
            decodes=self.decodes,
            shares_prefix=shares,
        )

    def _find_class(self, config: Any) -> Any:
        model_class = getattr(transformers, self.name)
        if not isinstance(config, model_class.config_class):
            raise ValueError(
                f"it names the class {self.name} and the model_type {config.model_type!r}"
            )
        return model_class

    def _words(self, files: ModelFiles, tokenizer: Any) -> tuple[int, ...]:
        """The ids of the answers, the relevant one last."""
        scored = self._scored(files) if files.modules else ()
        answers = files.options.get("answers")
        if scored and answers is None:
            return scored
        vocabulary: Mapping[str, int] = tokenizer.get_vocab()
        words = []
        for word in answers or _known(files).answers:
            # The first word that T5 answers begins with a space.
            spelled = f"▁{word}" if self.decodes and f"▁{word}" in vocabulary else word
            if spelled not in vocabulary:
                raise PreflightError(
                    f"the tokenizer of {files} has no token {word!r}, its answer: give the "
                    "checkpoint its own tokenizer, or `answers` that are one token each"
                )
            words.append(vocabulary[spelled])
        return tuple(reversed(words))

    def _scored(self, files: ModelFiles) -> tuple[int, ...]:
        """The ids of the module that makes a score of logits."""
        kinds = [module.kind for module in files.modules]
        if self.decodes or kinds != ["Transformer", "LogitScore"]:
            raise PreflightError(
                f"{files} is a {self.name} with the modules {', '.join(kinds)} of "
                "sentence-transformers: probably an embedding model. A language model that "
                f"re-ranks has Transformer and LogitScore. {ELSEWHERE}"
            )
        module = files.modules[1]
        score = usable(LogitScore, module.config, f"{files}: {module.folder}/config.json")
        ids = (score.false_token_id, score.true_token_id)
        return tuple(word for word in ids if word is not None)

    def _prompt(self, files: ModelFiles, segments: int, tokenizer: Any) -> Prompt:
        text = files.options.get("prompt", {}).get("text")
        says = text is None and (files.modules or find_published(files.reference) is None)
        if says and (chat := files.read_chat(segments)):
            return chat
        end = tokenizer.eos_token if self.decodes else ""
        template = PromptTemplate(
            files.folder, files.reference, text or _known(files).prompt, end=end
        )
        return files.read_prompt(template, segments)


def _known(files: ModelFiles) -> Published:
    """What is published of the checkpoint; raises PreflightError where nothing is: no guess."""
    if known := find_published(files.reference):
        return known
    raise PreflightError(
        f"{files} does not say after which prompt it answers with which words, and another "
        "model's would give other scores: give `answers` (for relevant and not relevant, such as "
        "[yes, no]) and, if it has no chat template with a query and a document, `prompt` (a "
        "file). docs/reference/checkpoints.md lists published ones"
    )


MONO_T5 = Generator("T5ForConditionalGeneration", decodes=True)
MONO_MT5 = Generator("MT5ForConditionalGeneration", decodes=True)
GEMMA = Generator("GemmaForCausalLM")
QWEN2 = Generator("Qwen2ForCausalLM")
QWEN3 = Generator("Qwen3ForCausalLM")

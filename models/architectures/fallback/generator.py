"""Language models that answer a prompt with a word: monoT5, duoT5, Qwen3-Reranker and mxbai-rerank-v2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS, Prompt
from models.architectures.fallback.architecture import TransformersModel, slower
from models.architectures.fallback.skeleton import checked_tensors, count_products, make_skeleton
from models.architectures.fallback.tasks import Readout, Task
from models.architectures.protocol import ModelFiles
from models.tokenizers.conversion import load_with_transformers

# T5 has relative positions, without a table that ends.
_T5_POSITIONS = 1 << 14


@dataclass(frozen=True)
class Generator:
    """A kind of language model.

    Attributes:
        task: what the model does.
        prompts: by the number of texts of an input.
        words: pairs of words for not relevant and relevant; the first pair that the vocabulary has counts.
        named: the words of published checkpoints that differ, by Hugging Face id.
        control: special tokens of the prompts.
    """

    task: Task
    prompts: Mapping[int, Prompt]
    words: Sequence[tuple[str, str]]
    named: Mapping[str, tuple[str, str]]
    control: Sequence[str]


_T5_PROMPTS = {
    SEGMENTS["mono"]: Prompt(("Query:", "Document:", "Relevant:</s>")),
    SEGMENTS["duo"]: Prompt(("Query:", "Document0:", "Document1:", "Relevant:</s>")),
}
_FALSE_TRUE = ("▁false", "▁true")
_QWEN3 = Prompt(
    (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: '
        "Given a web search query, retrieve relevant passages that answer the query\n<Query>:",
        "<Document>:",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    query=(" ", "\n"),
    doc=(" ", ""),
)
_MXBAI = Prompt(
    (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nquery:",
        "\ndocument:",
        "\nYou are a search relevance expert who evaluates how well documents match search queries. For each "
        "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
        "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
    ),
    query=(" ", ""),
    doc=(" ", ""),
)
_CHAT = ("<|im_start|>", "<|im_end|>")
GENERATORS = {
    # Portuguese T5 answers in Portuguese; the vocabulary of the English one lacks these words.
    "T5ForConditionalGeneration": Generator("seq2seq", _T5_PROMPTS, (("▁não", "▁sim"), _FALSE_TRUE), {}, ("</s>",)),
    "MT5ForConditionalGeneration": Generator(
        "seq2seq",
        _T5_PROMPTS,
        (("▁no", "▁yes"),),
        {"unicamp-dl/mt5-3B-mmarco-en-pt": ("▁", "▁true"), "unicamp-dl/mt5-13b-mmarco-100k": _FALSE_TRUE},
        ("</s>",),
    ),
    "Qwen2ForCausalLM": Generator("causal", {SEGMENTS["mono"]: _MXBAI}, (("0", "1"),), {}, _CHAT),
    "Qwen3ForCausalLM": Generator("causal", {SEGMENTS["mono"]: _QWEN3}, (("no", "yes"),), {}, _CHAT),
}


def read_generator(files: ModelFiles, segments: int) -> TransformersModel:
    """Checks a language model of the class that config.json names, one of `GENERATORS`.

    Args:
        files: the checkpoint's.
        segments: how many texts an input has.

    Raises:
        PreflightError: it cannot be scored.
    """
    name, reference = files.config["architectures"][0], files.reference
    generator = GENERATORS[name]
    if segments not in generator.prompts:
        raise PreflightError(f"the checkpoint {reference} is a {name}, whose prompt has one doc: it is for mono alone")
    skeleton = make_skeleton(files, generator.task)
    if type(skeleton).__name__ != name:
        raise PreflightError(
            f"config.json of the checkpoint {reference} contradicts itself: it names the class {name} and a model_type "
            f"of {type(skeleton).__name__}"
        )
    words, tokens = _find_tokens(generator, files)
    mapped = skeleton.get_output_embeddings().weight
    start = skeleton.config.decoder_start_token_id if generator.task == "seq2seq" else 0
    if not isinstance(start, int) or not 0 <= start < skeleton.get_input_embeddings().num_embeddings:
        raise PreflightError(
            f"config.json of the checkpoint {reference} has decoder_start_token_id {start!r:.100}, which must be the "
            "id of the token that the answer starts after"
        )
    return TransformersModel(
        config=files.config,
        readout=Readout(generator.task, next(n for n, each in skeleton.named_parameters() if each is mapped), tokens),
        num_labels=2,
        positions=_T5_POSITIONS if generator.task == "seq2seq" else skeleton.config.max_position_embeddings,
        vocab_size=skeleton.get_input_embeddings().num_embeddings,
        token_cost=count_products(skeleton),
        tensors=checked_tensors(skeleton, files),
        prompt=generator.prompts[segments],
        warnings=(
            slower(files),
            f"the score of {reference} is the logit of {words[1]!r} minus that of {words[0]!r} after the prompt of "
            f"docs/reference/model-inputs.md: a {name} that was not trained on it scores badly",
        ),
    )


def _find_tokens(generator: Generator, files: ModelFiles) -> tuple[tuple[str, str], tuple[int, int]]:
    vocabulary: Mapping[str, int] = load_with_transformers(files.folder, files.reference).get_vocab()
    named = generator.named.get(files.reference.partition("@")[0])
    choices = [named] if named else generator.words
    found = [words for words in choices if all(word in vocabulary for word in words)]
    missing = [token for token in generator.control if token not in vocabulary]
    if missing or not found:
        lacks = missing or [word for words in choices for word in words]
        raise PreflightError(
            f"the tokenizer of the checkpoint {files.reference} lacks {', '.join(map(repr, lacks))}, which the prompt "
            "and the answers of its model need: give the checkpoint its own tokenizer"
        )
    negative, positive = found[0]
    return found[0], (vocabulary[negative], vocabulary[positive])


def is_generator(config: Mapping[str, Any]) -> bool:
    """Whether config.json names a class of `GENERATORS`."""
    classes = config.get("architectures")
    return isinstance(classes, list) and bool(classes) and isinstance(classes[0], str) and classes[0] in GENERATORS

"""Random language models that answer a prompt with a word, and transformers' own scores of whole
prompts.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from contrib.generators.published import find_published
from models.reranker import Reranker
from tests.support.models.families import randomize
from tests.support.models.tokenizers import TEXTS, save_tokenizer

QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be "
    '"yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve '
    "relevant passages that answer the query\n<Query>: {}\n<Document>: {}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
MXBAI = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
    "assistant.<|im_end|>\n<|im_start|>user\nquery: {}\ndocument: {}\nYou are a search relevance "
    "expert who evaluates how well documents match search queries. For each query-document pair, "
    "carefully analyze the semantic relationship between them, then provide your binary relevance "
    "judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n"
)
_T5 = {"d_model": 36, "d_kv": 12, "d_ff": 50, "num_layers": 2, "num_heads": 3, "vocab_size": 720}
_T5 |= {"decoder_start_token_id": 0}
_DECODER = {
    "hidden_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
}
_DECODER |= {
    "head_dim": 12,
    "intermediate_size": 50,
    "vocab_size": 1200,
    "max_position_embeddings": 512,
}
GEMMA = (
    "<bos>A: {}\nB: {}\nGiven a query A and a passage B, determine whether the passage contains an "
    "answer to the query by providing a prediction of either 'Yes' or 'No'."
)
_QWEN2 = {name: value for name, value in _DECODER.items() if name != "head_dim"}


@dataclass(frozen=True)
class Case:
    """A class of transformers with its configuration, its prompt, its tokenizer, its answers, and
    the model whose published prompt it has.
    """

    class_name: str
    model_type: str
    config: dict[str, Any]
    prompt: str
    tokenizer: str
    words: tuple[str, ...]
    model: str
    kind: str = "mono"

    @property
    def options(self) -> dict[str, Any]:
        """Its prompt and answers, as the user of a folder gives them."""
        known = find_published(self.model)
        assert known is not None
        return {"prompt": {"text": known.prompt}, "answers": self.words[::-1]}


MONO, DUO = (
    "Query: {} Document: {} Relevant:</s>",
    "Query: {} Document0: {} Document1: {} Relevant:</s>",
)
GENERATORS = {
    "monoT5": Case(
        "T5ForConditionalGeneration",
        "t5",
        _T5,
        MONO,
        "t5",
        ("▁false", "▁true"),
        "castorini/monot5-base-msmarco",
    ),
    "monoT5 gated": Case(
        "T5ForConditionalGeneration",
        "t5",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        MONO,
        "t5",
        ("▁false", "▁true"),
        "castorini/monot5-base-msmarco",
    ),
    "Portuguese monoT5": Case(
        "T5ForConditionalGeneration",
        "t5",
        _T5,
        "Pergunta: {} Documento: {} Relevante:</s>",
        "t5",
        ("▁Não", "▁Sim"),
        "unicamp-dl/monoptt5-base",
    ),
    "mT5": Case(
        "MT5ForConditionalGeneration",
        "mt5",
        _T5,
        MONO,
        "t5",
        ("▁no", "▁yes"),
        "unicamp-dl/mt5-base-mmarco-v2",
    ),
    "duoT5": Case(
        "T5ForConditionalGeneration",
        "t5",
        _T5,
        DUO,
        "t5",
        ("▁false", "▁true"),
        "castorini/duot5-base-msmarco",
        "duo",
    ),
    "mxbai v2": Case(
        "Qwen2ForCausalLM",
        "qwen2",
        _QWEN2,
        MXBAI,
        "qwen2",
        ("0", "1"),
        "mixedbread-ai/mxbai-rerank-base-v2",
    ),
    "Qwen3": Case(
        "Qwen3ForCausalLM",
        "qwen3",
        _DECODER,
        QWEN3,
        "qwen2",
        ("no", "yes"),
        "Qwen/Qwen3-Reranker-0.6B",
    ),
    "Qwen3 tied": Case(
        "Qwen3ForCausalLM",
        "qwen3",
        {**_DECODER, "tie_word_embeddings": True},
        QWEN3,
        "qwen2",
        ("no", "yes"),
        "Qwen/Qwen3-Reranker-0.6B",
    ),
    "Gemma": Case(
        "GemmaForCausalLM",
        "gemma",
        _DECODER,
        GEMMA,
        "gemma",
        ("Yes",),
        "BAAI/bge-reranker-v2-gemma",
    ),
}


def save_generator(folder: Path, name: str, **config: Any) -> str:
    """Writes the random checkpoint of a case; `config` adds to its configuration."""
    case, given = GENERATORS[name], {**GENERATORS[name].config, **config}
    torch.manual_seed(0)
    model = getattr(transformers, case.class_name)(
        transformers.AutoConfig.for_model(case.model_type, **given)
    )
    randomize(model)
    for part, parameter in model.named_parameters():
        if part.endswith(".q.weight"):
            # T5 does not divide the products of attention by the size of a head.
            parameter.data *= given["d_kv"] ** -0.5
    model.save_pretrained(folder)
    words = ["yes", "no", *(case.words if case.tokenizer == "gemma" else ())]
    save_tokenizer(case.tokenizer, folder, [*TEXTS, *words * 40])
    if case.tokenizer == "t5":
        _rename_pieces(folder / "tokenizer.json", case.words)
    return str(folder)


def save_modules(folder: Path, template: str, true: int, false: int | None, **prompts: Any) -> None:
    """Adds a chat template and the modules of sentence-transformers for a re-ranker that answers
    with a word; `prompts` are of its config_sentence_transformers.json.
    """
    forward = {"method": "forward", "method_output_name": "logits"}
    types = ("base.modules.transformer.Transformer", "cross_encoder.modules.LogitScore")
    documents = {
        "modules.json": [
            {
                "idx": place,
                "name": str(place),
                "path": path,
                "type": f"sentence_transformers.{kind}",
            }
            for place, (path, kind) in enumerate(zip(("", "1_LogitScore"), types, strict=True))
        ],
        "sentence_bert_config.json": {
            "transformer_task": "text-generation",
            "modality_config": {"text": forward, "message": {**forward, "format": "flat"}},
            "module_output_name": "causal_logits",
        },
        "config_sentence_transformers.json": {"model_type": "CrossEncoder", **prompts},
        "1_LogitScore/config.json": {"true_token_id": true, "false_token_id": false},
    }
    (folder / "1_LogitScore").mkdir(exist_ok=True)
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text(template)


def _rename_pieces(path: Path, words: Sequence[str]) -> None:
    """Gives a small Unigram vocabulary the answers, which it learned no piece for, in the place of
    other words.
    """
    tokenizer = json.loads(path.read_text())
    pieces = tokenizer["model"]["vocab"]
    whole = [
        place for place, (piece, _) in enumerate(pieces) if piece.startswith("▁") and len(piece) > 1
    ]
    for place, word in zip(whole[-2:], words, strict=True):
        pieces[place][0] = word
    path.write_text(json.dumps(tokenizer))


def prompt_ids(folder: str, case: Case, texts: Sequence[Sequence[str]]) -> list[list[int]]:
    """The ids of whole prompts, by the tokenizer of transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [
        tokenizer(case.prompt.format(*each), add_special_tokens=False).input_ids for each in texts
    ]


def wanted_answers(
    folder: str, case: Case, prompts: Sequence[Sequence[int]], dtype: torch.dtype = torch.float32
) -> list[float]:
    """Transformers' own logit after each prompt, or the difference of two."""
    vocabulary = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    *negative, positive = (vocabulary[word] for word in case.words)
    model = getattr(transformers, case.class_name).from_pretrained(folder, dtype=dtype).eval()
    start = {"decoder_input_ids": torch.tensor([[0]])} if case.tokenizer == "t5" else {}
    scores = []
    for ids in prompts:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids]), **start).logits[0, -1]
        scores.append(float(logits[positive] - logits[negative].sum()))
    return scores


def main() -> None:
    """Prints, for each case, the largest difference from transformers and the spread of the
    scores.
    """
    texts = [text.strip() for text in TEXTS[:9] if text.strip()]
    lengths: Any = {"truncation": "paper", "max_query_length": 40, "max_length": 512}
    for name, case in GENERATORS.items():
        inputs = [(texts[-1], text, *texts[: case.kind == "duo"]) for text in texts]
        with tempfile.TemporaryDirectory() as folder:
            save_generator(Path(folder), name)
            wanted = wanted_answers(folder, case, prompt_ids(folder, case, inputs))
            kind: Any = case.kind
            given = {"dtype": "float32", "device": "cpu", **lengths, **case.options}
            reranker = Reranker(folder, kind, **given)
            difference = np.abs(reranker.score(inputs) - wanted).max()
        print(f"{case.model:<40} {name:<20} {difference:8.1e} {np.std(wanted):8.2f}")


if __name__ == "__main__":
    main()

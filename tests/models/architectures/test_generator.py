"""Language models that answer with a word score as transformers scores their whole prompts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from beamrank.errors import ConfigError, PreflightError
from models.checkpoints.check import resolve_checkpoint
from models.reranker import Reranker
from tests.support.models.families import randomize
from tests.support.models.tokenizers import TEXTS, save_tokenizer
from tests.support.oracle import assert_parity

_QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web '
    "search query, retrieve relevant passages that answer the query\n<Query>: {}\n<Document>: {}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_T5 = {"d_model": 36, "d_kv": 12, "d_ff": 50, "num_layers": 2, "num_heads": 3, "vocab_size": 720}
_T5 |= {"decoder_start_token_id": 0}
_DECODER = {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1}
_DECODER |= {"head_dim": 12, "intermediate_size": 50, "vocab_size": 1200, "max_position_embeddings": 512}


@dataclass(frozen=True)
class _Case:
    """A class of transformers with its configuration, its prompt, its tokenizer, and its answers."""

    class_name: str
    model_type: str
    config: dict[str, Any]
    prompt: str
    tokenizer: str
    words: tuple[str, str]
    kind: str = "mono"


_MONO, _DUO = "Query: {} Document: {} Relevant:</s>", "Query: {} Document0: {} Document1: {} Relevant:</s>"
_CASES = {
    "monoT5": _Case("T5ForConditionalGeneration", "t5", _T5, _MONO, "t5", ("▁false", "▁true")),
    "monoT5 gated": _Case(
        "T5ForConditionalGeneration",
        "t5",
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        _MONO,
        "t5",
        ("▁false", "▁true"),
    ),
    "Portuguese monoT5": _Case("T5ForConditionalGeneration", "t5", _T5, _MONO, "t5", ("▁não", "▁sim")),
    "mT5": _Case("MT5ForConditionalGeneration", "mt5", _T5, _MONO, "t5", ("▁no", "▁yes")),
    "duoT5": _Case("T5ForConditionalGeneration", "t5", _T5, _DUO, "t5", ("▁false", "▁true"), "duo"),
    "Qwen3": _Case("Qwen3ForCausalLM", "qwen3", _DECODER, _QWEN3, "qwen2", ("no", "yes")),
    "Qwen3 tied": _Case(
        "Qwen3ForCausalLM", "qwen3", {**_DECODER, "tie_word_embeddings": True}, _QWEN3, "qwen2", ("no", "yes")
    ),
}
_DOCS = [text.strip() for text in TEXTS[:9] if text.strip()]
_QUERIES = ["what is the capital of France?", "the dog", "1,234 (p < 0.05)", "北京 and 한국어!"]
_PAIRS = [(query, doc) for query in _QUERIES for doc in _DOCS]
_TRIPLES = [(query, doc, _DOCS[(place + 3) % len(_DOCS)]) for query in _QUERIES for place, doc in enumerate(_DOCS)]


def _save(folder: Path, name: str) -> str:
    case = _CASES[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(case.model_type, **case.config)
    model = getattr(transformers, case.class_name)(config)
    randomize(model)
    for part, parameter in model.named_parameters():
        if part.endswith(".q.weight"):
            # T5 does not divide the products of attention by the size of a head.
            parameter.data *= case.config["d_kv"] ** -0.5
    model.save_pretrained(folder)
    save_tokenizer(case.tokenizer, folder, [*TEXTS, *["yes", "no"] * 40])
    if case.tokenizer == "t5":
        _rename_pieces(folder / "tokenizer.json", case.words)
    return str(folder)


def _rename_pieces(path: Path, words: tuple[str, str]) -> None:
    """Gives a small Unigram vocabulary the answers, which it learned no piece for, in the place of other words."""
    tokenizer = json.loads(path.read_text())
    pieces = tokenizer["model"]["vocab"]
    whole = [place for place, (piece, _) in enumerate(pieces) if piece.startswith("▁") and len(piece) > 1]
    for place, word in zip(whole[-2:], words, strict=True):
        pieces[place][0] = word
    path.write_text(json.dumps(tokenizer))


def _inputs(case: _Case) -> Sequence[tuple[str, ...]]:
    return _TRIPLES if case.kind == "duo" else _PAIRS


def _wanted(folder: str, case: _Case, prompts: Sequence[list[int]] = ()) -> list[float]:
    """The difference of transformers' own logits after each whole prompt, of the case's texts or given as ids."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    negative, positive = (tokenizer.get_vocab()[word] for word in case.words)
    model = getattr(transformers, case.class_name).from_pretrained(folder, dtype=torch.float32).eval()
    start = {"decoder_input_ids": torch.tensor([[0]])} if case.prompt != _QWEN3 else {}
    whole = (tokenizer(case.prompt.format(*texts), add_special_tokens=False).input_ids for texts in _inputs(case))
    scores = []
    for ids in prompts or whole:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids]), **start).logits[0, -1]
        scores.append(float(logits[positive] - logits[negative]))
    return scores


def _reranker(folder: str, name: str, dtype: str = "float32", **options: Any) -> Reranker:
    options = {"truncation": "paper", "max_query_length": 40, "max_length": 512, **options}
    return Reranker(folder, _CASES[name].kind, dtype=dtype, device="cpu", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", _CASES)
def test_prompts_score_as_in_transformers(name, tmp_path, caplog):
    folder = _save(tmp_path, name)
    wanted = _wanted(folder, _CASES[name])
    assert np.std(wanted) > 0.1
    assert_parity(_reranker(folder, name).score(_inputs(_CASES[name])).tolist(), wanted)
    assert "slower than a native architecture" in caplog.text
    assert f"the logit of {_CASES[name].words[1]!r} minus that of {_CASES[name].words[0]!r}" in caplog.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["monoT5", "Qwen3"])
def test_score_has_the_same_bits_beside_others(name, dtype, tmp_path):
    folder = _save(tmp_path, name)
    one, two = (_reranker(folder, name, dtype, threads=threads) for threads in (1, 2))
    together = two.score(_PAIRS)
    assert one.score(_PAIRS[::-1]).tolist() == together[::-1].tolist()
    assert [float(one.score([pair])[0]) for pair in _PAIRS[::7]] == together[::7].tolist()
    assert len(np.unique(together)) > 0.9 * len(_PAIRS)


def test_long_doc_is_cut_and_the_end_of_the_prompt_is_not(tmp_path):
    folder = _save(tmp_path, "monoT5")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    before, doc, after = (
        tokenizer(text, add_special_tokens=False).input_ids
        for text in ("Query: a Document:", "France the dog " * 200, "Relevant:</s>")
    )
    prompt = [*before, *doc[: 64 - len(before) - len(after)], *after]
    found = _reranker(folder, "monoT5", max_query_length=32, max_length=64).score([("a", "France the dog " * 200)])
    assert_parity(found.tolist(), _wanted(folder, _CASES["monoT5"], [prompt]))


@pytest.mark.parametrize(
    ("name", "kind", "changes", "message"),
    [
        ("Qwen3", "duo", {}, "is a Qwen3ForCausalLM, whose prompt has one doc: it is for mono alone"),
        ("Qwen3", "mono", {"model_type": "qwen2"}, "contradicts itself: it names the class Qwen3ForCausalLM"),
        ("Qwen3", "mono", {"architectures": ["Qwen3Model"]}, "has no score.weight|cannot be scored"),
        ("Qwen3", "mono", {"auto_map": {"AutoModel": "theirs.Theirs"}}, "Qwen3ForCausalLM"),
        ("monoT5", "mono", {"num_layers": 3}, "lacks .* calls for: encoder.block.2"),
        ("monoT5", "mono", {"vocab_size": 9}, r"is \(720, 36\), config.json calls for \(9, 36\)"),
    ],
    ids=str,
)
def test_unusable_language_model_is_refused(name, kind, changes, message, tmp_path):
    folder = _save(tmp_path, name)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(folder, kind)


def test_tokenizer_without_the_answers_is_refused(tmp_path):
    folder = _save(tmp_path, "monoT5")
    save_tokenizer("bert", tmp_path)
    with pytest.raises(PreflightError, match="lacks '</s>', which the prompt and the answers of its model need"):
        resolve_checkpoint(folder, "mono")


def test_prompt_that_leaves_a_doc_no_token_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"leave a doc no token beside a long query and the .* tokens of the model's"):
        _reranker(_save(tmp_path, "Qwen3"), "Qwen3", max_query_length=16, max_length=64)

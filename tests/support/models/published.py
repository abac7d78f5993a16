"""Small random checkpoints in the form of published re-rankers.

`python -m tests.support.models.published` writes the rows of docs/reference/checkpoints.md: how far
the scores of beamrank are from those of sentence-transformers.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel, AutoTokenizer

from models.reranker import Reranker
from tests.support.changed_files import edit_json
from tests.support.models.families import CASES, SIZES, random_model, randomize
from tests.support.models.tokenizers import TEXTS, save_tokenizer

_LENGTH = 96
_PAIRS = [(query, doc) for query in TEXTS[:3] for doc in TEXTS[1:8] if doc.strip()]


class Published(NamedTuple):
    """The form of a re-ranker: its tokenizer, its model_type and configuration, and what makes its
    files other than those of a classifier and its tokenizer.
    """

    tokenizer: str
    model_type: str
    config: dict[str, Any]
    finish: Callable[[Path], object] = str


def _case(tokenizer: str, case: str, **config: Any) -> Published:
    return Published(tokenizer, CASES[case].model_type, {**CASES[case].config, **config})


def _save_again(folder: Path) -> None:
    """As sentence-transformers saves a CrossEncoder since 5.4, with modules.json."""
    CrossEncoder(str(folder), device="cpu").save_pretrained(str(folder))


def _begin_each_text(folder: Path) -> None:
    """A tokenizer of Llama's class that puts `<s>` before a doc too, and positions that are
    named.
    """
    path = folder / "tokenizer.json"
    library = Tokenizer.from_file(str(path))
    library.post_processor = TemplateProcessing(
        single="<s>:0 $A:0 </s>:0",
        pair="<s>:0 $A:0 </s>:0 <s>:1 $B:1 </s>:1",
        special_tokens=[(token, library.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    library.save(str(path))
    edit_json(folder / "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    edit_json(folder / "tokenizer_config.json", add_bos_token=True, add_eos_token=True)


def save_modules(folder: Path, pooling: str = "cls", outputs: int = 1) -> None:
    """The modules of the published ettin re-rankers, over the encoder in a folder."""
    encoder = Transformer(str(folder))
    width = encoder.get_embedding_dimension()
    modules = [
        encoder,
        Pooling(width, pooling),
        Dense(width, 24, bias=False, activation_function=torch.nn.GELU()),
        LayerNorm(24),
        Dense(24, outputs, activation_function=torch.nn.Identity(), module_output_name="scores"),
    ]
    for module in modules[2:]:
        randomize(module)
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))


_DEBERTA: dict[str, Any] = {
    **SIZES,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "type_vocab_size": 0,
    "position_buckets": 8,
    "share_att_key": True,
    "num_labels": 1,
    "norm_rel_ebd": "layer_norm",
}
PUBLISHED = {
    "cross-encoder/ms-marco-MiniLM-L6-v2": _case("bert", "bert", num_labels=1)._replace(
        finish=_save_again
    ),
    "castorini/monobert-large-msmarco": _case("bert", "bert"),
    "cross-encoder/ms-marco-electra-base": _case("electra", "electra"),
    "cross-encoder/stsb-roberta-base": _case("roberta", "roberta", num_labels=1),
    "BAAI/bge-reranker-v2-m3": _case("xlm-roberta", "xlm-roberta"),
    "antoinelouis/crossencoder-camembert-base-mmarcoFR": _case(
        "camembert", "camembert", num_labels=1, hidden_act="gelu"
    ),
    "efederici/cross-encoder-distilbert-it": _case("distilbert", "distilbert one logit"),
    "Alibaba-NLP/gte-reranker-modernbert-base": _case("modernbert", "modernbert mean"),
    "ibm-granite/granite-embedding-reranker-english-r2": _case("modernbert", "modernbert cls"),
    "cl-nagoya/ruri-v3-reranker-310m": _case(
        "xlm-roberta", "modernbert rope", num_labels=1
    )._replace(finish=_begin_each_text),
    "cross-encoder/ettin-reranker-17m-v1": _case("modernbert", "modernbert cls")._replace(
        finish=save_modules
    ),
    "mixedbread-ai/mxbai-rerank-xsmall-v1": Published("deberta-v2", "deberta-v2", _DEBERTA),
}


def save_published(folder: Path, name: str) -> str:
    """Writes the random checkpoint in the form of a published one."""
    tokenizer, model_type, config, finish = PUBLISHED[name]
    own = AutoTokenizer.from_pretrained(save_tokenizer(tokenizer, folder))
    roles = {role: f"{role}_token_id" for role in ("pad", "cls", "sep")}
    ids = {key: getattr(own, key) for key in roles.values()}
    ids |= {"bos_token_id": own.cls_token_id, "eos_token_id": own.sep_token_id}
    sizes = {"vocab_size": len(own), "max_position_embeddings": 2 + _LENGTH}
    if finish is save_modules:
        torch.manual_seed(0)
        model = AutoModel.from_config(
            AutoConfig.for_model(model_type, **{**config, **sizes, **ids})
        )
        randomize(model)
    else:
        model = random_model(model_type, **{**config, **sizes, **ids})
    model.save_pretrained(folder)
    finish(folder)
    return str(folder)


def compare(folder: str) -> tuple[list[float], list[float]]:
    """The log-odds of some pairs in beamrank, and in sentence-transformers."""
    theirs = CrossEncoder(folder, device="cpu", activation_fn=torch.nn.Identity())
    theirs.max_seq_length = _LENGTH
    logits = torch.tensor(theirs.predict(_PAIRS)).reshape(len(_PAIRS), -1)
    wanted = logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]
    lengths: dict[str, Any] = {"max_query_length": _LENGTH // 2, "max_length": _LENGTH}
    ours = Reranker(folder, dtype="float32", device="cpu", truncation="hf", **lengths)
    return ours.score(_PAIRS).tolist(), wanted.tolist()


def main() -> None:
    """Prints, for each re-ranker, the largest difference and the spread of the log-odds."""
    for name, form in PUBLISHED.items():
        with tempfile.TemporaryDirectory() as folder:
            found, wanted = map(torch.tensor, compare(save_published(Path(folder), name)))
        difference = (found - wanted).abs().max().item()
        print(f"| `{name}` | `{form.model_type}` | {difference:.0e} | {wanted.std():.1f} |")


if __name__ == "__main__":
    main()

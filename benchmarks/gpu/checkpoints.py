"""The models of the first look: random weights of known shapes, with a vocabulary made from the
demo's texts, so that nothing is downloaded.
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from beamrank.demo.collection import stdlib_docs
from beamrank.machine import usable_cores
from beamrank.ranking.input_layout import PackedInputs
from benchmarks.engine.shapes import Shape
from benchmarks.parts import prefix
from models.reranker import Reranker

_VOCABULARY = 8000
_QUERY_TOKENS = 8
_SHORTEST, _LONGEST = 24, 250


class Setup(NamedTuple):
    """What decides the figures.

    Attributes:
        work: the folder of the checkpoints and runs.
        device: `cuda` or `cpu`.
        tiny: whether models have one layer or two, and there are few inputs, as a CPU needs.
    """

    work: Path
    device: str
    tiny: bool

    @property
    def dtypes(self) -> list[str]:
        """The default of a GPU first; a CPU has no fast float16."""
        return ["bfloat16", "float16", "float32"] if self.device == "cuda" else ["bfloat16"]

    def sized(self, count: int) -> int:
        """So many, or a few."""
        return max(4, count // 50) if self.tiny else count


FIRST = "MiniLM-L6"
DUO = "duo MiniLM-L12"
SHAPES = {
    FIRST: Shape("bert", 6, 384, 12, 0),
    "BERT-base": Shape("bert", 12, 768, 12, 0),
    "bge-reranker-v2-m3": Shape("xlm-roberta", 24, 1024, 16, 0),
    "ModernBERT-base": Shape("modernbert", 22, 768, 12, 0),
    DUO: Shape("bert", 12, 384, 12, 0, "duo"),
}
QWEN = "Qwen3-Reranker-0.6B"
_QWEN_LAYERS = {"num_hidden_layers": 28}
_TINY_QWEN = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 8}
MODELS = (*(name for name in SHAPES if name != DUO), QWEN)
"""Those that score pairs, the most used first."""


def save_vocabulary(folder: Path) -> str:
    """Makes the words of a BERT from the demo's texts; returns the folder."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    words = BertWordPieceTokenizer()
    texts = [doc.text for doc in stdlib_docs()]
    words.train_from_iterator(texts, vocab_size=_VOCABULARY, show_progress=False)
    words.save_model(str(folder))
    bert: Any = BertTokenizer
    bert.from_pretrained(folder).save_pretrained(folder)
    return str(folder)


def checkpoint(name: str, setup: Setup) -> str:
    """The folder of a model, which is saved where it is not there."""
    folder = setup.work / name.replace(" ", "-")
    if (folder / "config.json").exists():
        return str(folder)
    if name == QWEN:
        return prefix.save_model(folder, **(_TINY_QWEN if setup.tiny else _QWEN_LAYERS))
    shape = SHAPES[name]
    if setup.tiny:
        shape = shape._replace(layers=2, hidden=8 * shape.heads)
    vocabulary = setup.work / "vocabulary"
    if not vocabulary.exists():
        save_vocabulary(vocabulary)
    # Wider than BERT's: scores of untrained models are close to ties.
    return shape.save(folder, str(vocabulary), initializer_range=shape.hidden**-0.5)


@cache
def load(name: str, setup: Setup, device: str, dtype: str) -> Reranker:
    """A model that scores pairs on a device; a process loads it once."""
    own: dict[str, Any] = {"truncation": "hf"}
    if name == QWEN:
        own = {"prompt": {"text": prefix.PROMPT}, "answers": prefix.ANSWERS}
    folder = checkpoint(name, setup)
    return Reranker(folder, dtype=dtype, device=device, threads=usable_cores(), **own)


def inputs(model: Reranker, count: int, tokens: int | None = None) -> PackedInputs:
    """So many inputs of random token ids, as a shard stores them: all of so many tokens, or of 24
    to 250.
    """
    drawn = np.random.default_rng(0)
    template = model.engine.checkpoint.architecture.template(model.tokenizer.special)
    lengths = np.full(count, tokens) if tokens else drawn.integers(_SHORTEST, _LONGEST, count)
    docs = np.maximum(1, lengths - _QUERY_TOKENS - template.special_tokens)
    kept = np.stack([np.full(count, _QUERY_TOKENS), docs], axis=1)
    ends = np.cumsum(kept.ravel())
    ids = drawn.integers(5, model.engine.checkpoint.architecture.vocab_size, ends[-1])
    starts = (ends - kept.ravel()).reshape(kept.shape)
    return PackedInputs(ids.astype(np.uint16), starts, kept, template)

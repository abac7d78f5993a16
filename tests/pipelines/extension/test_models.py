"""Architectures and a backend of another package, which an entry point names, in a run."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from beamrank.config.load import load_config
from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputTemplate
from models.architectures.families import ARCHITECTURES
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from models.scoring.backends.registry import BACKENDS, Device, OutOfMemory
from models.scoring.packing import fill_batches
from models.tokenizers.library import load_tokenizer
from pipelines.plan.estimate import estimate
from tests.support.checkpoints import LETTERS
from tests.support.models.tokenizers import save_tokenizer
from tests.support.plugins import install
from tests.support.small_collection import DOCS, TOPICS, small_cascade


@dataclass(frozen=True)
class SumOfIds:
    """Scores a doc by the sum of its token ids, less the tokens of the query."""

    num_labels: int = 1
    positions: int = 64
    vocab_size: int = 1000
    warnings: tuple[str, ...] = ()

    @property
    def tensors(self):
        return {"scale": (1,)}

    def template(self, special):
        """`query [SEP] doc [SEP][SEP]`, with token types 1 and 0."""
        return InputTemplate((), ((special.sep_id,), (special.sep_id,) * 2), (1, 0), special.pad_id)

    def build(self, weights, dtype):
        return _SumOfIds(weights["scale"])


def read_sum_of_ids(files, segments):
    return SumOfIds()


class Lowered:
    """A tokenizer that tokenizes queries in lower case."""

    def __init__(self, folder):
        self._tokenizer = load_tokenizer(folder)
        self.vocab_size, self.special = self._tokenizer.vocab_size, self._tokenizer.special
        self.digest = f"lower {self._tokenizer.digest}"

    def encode(self, texts, max_tokens):
        return self._tokenizer.encode(texts, max_tokens)

    def encode_queries(self, texts, max_tokens):
        return self.encode([text.lower() for text in texts], max_tokens)


class ReadLowered:
    """An architecture with a tokenizer of its own."""

    load_tokenizer = Lowered

    def __call__(self, files, segments):
        return SumOfIds()


read_lowered = ReadLowered()


class _SumOfIds(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, rows):
        values = torch.where(rows.token_types == 0, self.scale * rows.token_ids, -1)
        return torch.cat([group.split(values).sum(dim=1) for group in rows.groups])


class CountTokens:
    """A backend that scores an input by its length, and has memory for 100 tokens."""

    digest_keys: ClassVar = {"counts": "tokens"}
    streams = 2

    @classmethod
    def resolve(cls, device, dtype):
        return Device("cpu", "float32", 200)

    @classmethod
    def load(cls, checkpoint, device, dtype, threads, kernel):
        return cls()

    def start_thread(self):
        pass

    def batches(self, lengths, token_budget):
        return fill_batches(lengths.sum(axis=1), token_budget)

    def computed_tokens(self, lengths):
        return int(lengths.sum())

    def forward(self, batch):
        if batch.token_ids.size > 100:
            raise OutOfMemory
        return batch.lengths.astype(np.float32)


def _mono_run(folder, checkpoint=None, **keys):
    collection = small_cascade(folder)
    del collection.keys["duo"]
    collection.keys |= keys
    if checkpoint is not None:
        collection.keys["mono"]["checkpoint"] = checkpoint
    return collection.run()


def _checkpoint(folder):
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "sum_of_ids", "architectures": ["SumOfIdsForRanking"]}'
    )
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in LETTERS))
    save_file({"scale": torch.tensor([0.5])}, folder / "model.safetensors")
    return str(folder)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package whose entry point names an object of this module."""
    return lambda registry, name, entry: install(
        tmp_path / "package", monkeypatch, registry, **{name: f"{__name__}:{entry}"}
    )


def test_architecture_of_a_package_scores_a_run(installed, tmp_path):
    installed(ARCHITECTURES, "sum_of_ids", "read_sum_of_ids")
    checkpoint = _checkpoint(tmp_path / "toy")
    rows = _mono_run(tmp_path, checkpoint=checkpoint).rows("mono")
    tokenizer = load_tokenizer(checkpoint)
    texts = {**DOCS, **TOPICS}
    ids = dict(zip(texts, tokenizer.encode(list(texts.values()), 512).ids.to_pylist(), strict=True))
    assert len(rows) == 60
    for row in rows:
        query = ids[row["query_id"]][:15]  # one of max_query_length's 16 tokens is [SEP]
        doc = ids[row["doc_id"]][
            : 64 - 3 - 1 - len(query)
        ]  # three special tokens, and `original` leaves one unused
        assert row["score"] == 0.5 * (sum(doc) + 2 * tokenizer.special.sep_id) - (len(query) + 1)


def test_architecture_can_bring_its_tokenizer(installed, tmp_path):
    installed(ARCHITECTURES, "SumOfIdsForRanking", "read_lowered")
    checkpoint = _checkpoint(tmp_path / "toy")
    save_tokenizer("roberta", tmp_path / "toy")
    (tmp_path / "toy" / "vocab.txt").unlink()
    plain, lowered = load_tokenizer(checkpoint), Lowered(checkpoint)
    queries = ["Open The OVEN", "DOOR"]
    assert plain.encode(queries, 9).ids != lowered.encode_queries(queries, 9).ids
    run = _mono_run(tmp_path, checkpoint=checkpoint)
    assert run.plan.of_step("tokenize")[0].keys["tokenizer_digest"] == lowered.digest
    rows = run.rows("mono")
    texts = [(TOPICS[row["query_id"]], DOCS[row["doc_id"]]) for row in rows]
    reranker = Reranker(checkpoint, max_query_length=16, max_length=64)
    assert reranker.score(texts).tolist() == [row["score"] for row in rows]


def test_architecture_that_is_not_registered_is_refused_by_name(tmp_path):
    with pytest.raises(PreflightError, match=r"'sum_of_ids' \(SumOfIdsForRanking\), .*'bert'"):
        resolve_checkpoint(_checkpoint(tmp_path / "toy"), "mono")


def test_backend_of_a_package_halves_batches_on_oom(installed, tmp_path):
    installed(BACKENDS, "count", "CountTokens")
    run = _mono_run(tmp_path, backend="count")
    manifest = run.plan.seal("mono")
    assert manifest is not None
    counts = [receipt.counts for receipt in manifest.receipts]
    assert sum(row["score"] for row in run.rows("mono")) == sum(each["tokens"] for each in counts)
    assert sum(each["halvings"] for each in counts) > 0


def test_backend_of_a_package_scores_in_memory_and_for_the_plan(installed, tmp_path, monkeypatch):
    installed(BACKENDS, "count", "CountTokens")
    # [CLS], the query's and the doc's tokens, and two [SEP].
    assert Reranker("embedded:mono", backend="count").score(
        [("oven", "door"), ("oven", "oven door")]
    ).tolist() == [
        5,
        6,
    ]
    monkeypatch.delitem(BACKENDS._ours, "torch")
    collection = small_cascade(tmp_path)
    collection.keys["backend"] = "count"
    inferences = {
        stage.stage: stage.inferences
        for stage in estimate(load_config(str(collection.path))).stages
    }
    assert (inferences["mono"], inferences["duo"]) == (60, 60)

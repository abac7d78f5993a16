"""A tiny BERT and a tiny collection for the tests of training."""

import gc
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, BertModel

from beamrank.ranking.input_layout import InputLimits
from benchmarks.datasets.medquad import read_medquad
from models.training.config import ChunksConfig, Kind, load_train_config
from models.training.data.groups import Group, InputEncoder, Texts
from models.training.initial_model import Start
from models.training.session import Session
from models.training.tasks import Task, score
from models.training.trainer import BertAdam, learning_rate_at

THINGS = ("sky", "grass", "blood", "snow", "coal", "sun", "sea", "rose", "leaf", "milk")
COLOURS = ("blue", "green", "red", "white", "black", "gold", "teal", "pink", "lime", "cream")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "is", "the", *THINGS, *COLOURS]
LIMITS = InputLimits("original", 10, 32)
# Trainer collects all garbage at the end, which would look at everything that the libraries made.
gc.freeze()
_OVERFITTING_STEPS = 300
_OVERFITTED = 0.005
_PAIR = "<QAPair><Question>what is {}</Question><Answer>{}</Answer></QAPair>"


def save_start(folder: Path, **config: Any) -> str:
    """A random encoder of two layers, 32 wide, with a vocabulary of colours and things."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(WORDS),
        "max_position_embeddings": 32,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "initializer_range": 0.1,
    }
    BertModel(BertConfig(**{**shape, **config})).save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


def save_tokenizer(folder: Path, words: Sequence[str] = WORDS) -> None:
    """A BERT tokenizer of these words."""
    tokenizer = Tokenizer(
        models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(words[:5]))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer"}', encoding="utf-8"
    )


def colour_groups(docs: int = 2) -> list[Group]:
    """What colour is it? One group for each of ten things, the right colour first; the teacher
    knows it too.
    """
    groups = []
    for number, thing in enumerate(THINGS):
        others = [COLOURS[(number + step) % len(COLOURS)] for step in range(docs)]
        teacher = tuple(3.0 - 1.5 * step for step in range(docs))
        groups.append(
            Group(f"what is {thing}", tuple(others), (True,) + (False,) * (docs - 1), teacher)
        )
    return groups


@dataclass(frozen=True)
class Scorer:
    """A model to train on a CPU, and its inputs."""

    model: BertForSequenceClassification
    encoder: InputEncoder

    def __call__(self, inputs: Sequence[Texts]) -> torch.Tensor:
        return score(self.model, self.encoder, inputs)


def make_scorer(
    start_folder: str,
    kind: str,
    labels: int = 2,
    dropout: float = 0.0,
    chunks: ChunksConfig | None = None,
) -> Scorer:
    start = Start(start_folder, LIMITS.max_length)
    torch.manual_seed(1)
    model = start.model(kind, labels, dropout, train_word_embeddings=True, chunks=chunks)
    return Scorer(model, InputEncoder(start.tokenizer, LIMITS, 512, chunks.count if chunks else 1))


def step_loss(
    task: Task, model: torch.nn.Module, groups: Sequence[Group[Any]], number: int = 0
) -> torch.Tensor:
    """The loss of a step of these groups."""
    tensors = task.collate(groups, number)
    return task.loss(model, tensors, task.counts(tensors))


def overfit(task: Task, model: torch.nn.Module, groups: list[Group]) -> float:
    """The loss over all groups after training on them, without dropout, until it is low enough to
    stop.
    """
    optimizer = BertAdam(model.named_parameters(), 1e-3, 0.0)
    model.train()
    for step in range(_OVERFITTING_STEPS):
        loss = step_loss(task, model, groups)
        if loss.item() < _OVERFITTED:
            break
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, 1e-3, 10, _OVERFITTING_STEPS)
        optimizer.step()
        optimizer.zero_grad()
    with torch.inference_mode():
        return step_loss(task, model, groups).item()


def write_collection(folder: Path) -> dict[str, Any]:
    """Ten topics over ten passages, each topic with one relevant passage, which the run has at rank
    4.
    """
    folder.mkdir(parents=True, exist_ok=True)
    docs = [
        json.dumps({"id": f"d{number}", "contents": colour})
        for number, colour in enumerate(COLOURS)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(docs) + "\n")
    (folder / "topics.tsv").write_text(
        "".join(f"q{n}\twhat is {thing}\n" for n, thing in enumerate(THINGS))
    )
    (folder / "qrels.txt").write_text(
        "".join(f"q{number} 0 d{number} 1\n" for number in range(len(THINGS)))
    )
    rows, taught = [], []
    for topic in range(len(THINGS)):
        ranked = [(topic + step) % len(COLOURS) for step in (1, 2, 3, 0, 4, 5)]
        rows += [f"q{topic} Q0 d{doc} {rank} {10 - rank} run" for rank, doc in enumerate(ranked, 1)]
        taught += [
            f"q{topic} Q0 d{doc} 1 {4.0 if doc == topic else 1.0 / doc if doc else 2.0} run"
            for doc in ranked
        ]
    (folder / "run.trec").write_text("\n".join(rows) + "\n")
    (folder / "teacher.trec").write_text("\n".join(taught) + "\n")
    return {
        "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "qrels": "qrels.txt",
        "run": "run.trec",
    }


def write_train_config(folder: Path, start: str, **keys: Any) -> Path:
    """A configuration over `write_collection`'s files: 40 quick steps, with dropout."""
    data = write_collection(folder)
    document: dict[str, Any] = {
        "start": start,
        "data": data,
        "input": {"max_query_length": 10, "max_length": 32},
        "optimizer": {"learning_rate": 3e-3, "warmup_steps": 2, "steps": 40, "batch_size": 4},
        "threads": 1,
        "output": "out",
    }
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump(document | keys))
    return path


def make_session(
    path: Path,
    kind: Kind,
    overrides: Sequence[str] = (),
    output: Path | None = None,
    *,
    dry_run: bool = False,
) -> Session:
    """A training in this process."""
    config = load_train_config(str(path), kind, overrides, None if output is None else str(output))
    return Session(config, kind, PartialState(cpu=True), dry_run=dry_run)


def stop_after(steps: int) -> Callable[[], bool]:
    """Asks for the end in that step of a call."""
    calls = iter(range(1, 1_000_000))
    return lambda: next(calls) >= steps


def logits_of(
    folder: str, model: torch.nn.Module, ids: list[int], types: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One input's logits by plain transformers from a folder, and by a model in memory."""
    loaded = BertForSequenceClassification.from_pretrained(folder).train(False)
    model.train(False)
    inputs = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])}
    with torch.inference_mode():
        return loaded(**inputs).logits, model(**inputs).logits


def save_medquad_archive(folder: Path) -> Path:
    """Ten questions and one twice, with an answer of its own; one answer serves two, and one is
    empty.
    """
    pairs = [
        _PAIR.format(thing, f"the {colour}") for thing, colour in zip(THINGS, COLOURS, strict=True)
    ]
    pairs += [
        _PAIR.format("sky", "the  teal"),
        _PAIR.format("the milk", "the blue"),
        _PAIR.format("cream", ""),
    ]
    path = folder / "medquad.tar.gz"
    (folder / "page.xml").write_text(f"<Document><QAPairs>{''.join(pairs)}</QAPairs></Document>")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder / "page.xml", "medquad/1/0000001.xml")
    return path


def save_medquad_collection(archive: Path, folder: Path) -> None:
    """The files of a MedQuAD archive, and a run of three candidates a topic, so that no BM25 is
    needed.
    """
    collection = read_medquad(archive)
    collection.write_corpus(folder)
    collection.write_topics(folder, collection.topics)
    run = [
        f"{topic.query_id} Q0 a{(number + step) % 10:05d} {step} {-step} bm25\n"
        for number, topic in enumerate(collection.topics)
        for step in (1, 2, 3)
    ]
    (folder / "bm25.trec").write_text("".join(run))

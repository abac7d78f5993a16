"""Pre-training on a corpus: its losses, resumption to the bit, and what a mono starts from."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForPreTraining

from beamrank.errors import ConfigError, PreflightError
from beamrank.notes import SILENT
from models.training.config import load_train_config
from models.training.data.groups import Group
from models.training.data.pretraining import NOT_PREDICTED, Masking
from models.training.data.texts import TextWriter, TokenTable
from models.training.initial_model import Start
from models.training.tasks import MaskedTask
from models.training.trainer import train
from tests.support.training import (
    COLOURS,
    THINGS,
    WORDS,
    make_session,
    save_start,
    save_tokenizer,
    step_loss,
    stop_after,
)


@pytest.fixture
def start(tmp_path: Path) -> str:
    return save_start(tmp_path / "start")


def write_config(folder: Path, steps: int = 40) -> Path:
    passages = [
        f"the {thing} is {colour}" for thing, colour in zip(THINGS, COLOURS, strict=True)
    ] * 3
    lines = [f"d{number}\t{text}" for number, text in enumerate(passages)]
    (folder / "corpus.tsv").write_text("\n".join([*lines, "broken", ""]))
    (folder / "tcp.yaml").write_text(
        "start: start\ndata: {corpus: {path: corpus.tsv, format: tsv}}\nthreads: 1\noutput: out\n"
        f"optimizer: {{learning_rate: 0.003, steps: {steps}, batch_size: 6, dropout: 0}}\n"
        "input: {max_query_length: 10, max_length: 32}\n"
    )
    return folder / "tcp.yaml"


def test_masked_loss_is_cross_entropy_of_masked_words_and_labels(start, tmp_path):
    texts = [
        ("the sky is blue", "snow is white"),
        ("the grass is green", "coal"),
        ("snow is the sky",),
        ("is red",),
    ]
    passages = [text for pack in texts for text in pack]
    numbers = iter(range(len(passages)))
    rows = [tuple(next(numbers) for _ in pack) for pack in texts]
    writer = TextWriter(tmp_path, Start(start, 32).tokenizer, 30)
    writer.add(passages)
    writer.close()
    tokens = TokenTable(tmp_path)
    packs = [[np.array(tokens[[row]].to_pylist()[0]) for row in pack] for pack in rows]
    for objective in ({"masked_words": 1.0}, {"masked_words": 0.5, "next_sentence": 2.0}):
        found, next_sentence = Start(start, 32), "next_sentence" in objective
        masking = Masking(found.tokenizer, WORDS.index("[MASK]"), 32, next_sentence, seed=3)
        model, task = (
            found.masked_model(0.0, True, next_sentence).eval(),
            MaskedTask(masking, tokens, objective, 32, 16),
        )
        loss = step_loss(task, model, [Group(0, each, None) for each in rows], 8).item()
        words, labels = [], []
        for each in masking.inputs(packs, 8):
            ids, types = (torch.from_numpy(part)[None] for part in (each.ids, each.types))
            output = model(input_ids=ids, token_type_ids=types)
            hidden = each.hidden != NOT_PREDICTED
            chosen = torch.log_softmax(output.prediction_logits[0][torch.from_numpy(hidden)], -1)
            words += (-chosen[range(len(chosen)), each.hidden[hidden]]).tolist()
            if each.next_label != NOT_PREDICTED:
                labels.append(
                    -torch.log_softmax(output.seq_relationship_logits[0], -1)[
                        each.next_label
                    ].item()
                )
        terms = {
            "masked_words": np.mean(words),
            "next_sentence": np.mean(labels) if labels else 0.0,
        }
        assert loss == pytest.approx(
            sum(weight * terms[name] for name, weight in objective.items()), rel=1e-5
        )
        assert len(labels) == (4 if "next_sentence" in objective else 0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["{masked_words: 1, next_sentence: 1}", "{masked_words: 1}"])
def test_accumulation_does_not_change_the_loss_of_a_step(objective, start, tmp_path):
    """Each hidden wordpiece counts the same, in a short passage and in a long one."""
    config = write_config(tmp_path, 3)
    texts = [
        f"{number}\t{' '.join(['the sky is blue'] * (1 if number % 3 else 6))}"
        for number in range(24)
    ]
    (tmp_path / "corpus.tsv").write_text("\n".join(texts))
    options = ["pack=false", "optimizer.batch_size=12", f"objective={objective}"]
    for name, more in (("one", []), ("six", ["optimizer.accumulation=6"])):
        train(
            make_session(config, "tcp", [*options, *more], tmp_path / name),
            lambda: False,
            SILENT,
            "",
        )
    one, six = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "six"))
    assert max((one[name] - six[name]).abs().max().item() for name in one) < 2e-5
    session = make_session(config, "tcp", options, tmp_path / "counts")
    groups = [group for group, _ in islice(session.source.stream(0), 12)]
    whole, *parts = [
        session.task.collate(groups[at : at + n], at) for at, n in ((0, 12), (0, 4), (4, 4), (8, 4))
    ]
    counts = session.task.counts(whole)
    losses = [session.task.loss(session.model, part, counts).item() for part in parts]
    assert sum(losses) == pytest.approx(
        session.task.loss(session.model, whole, counts).item(), rel=1e-5
    )


def test_next_sentence_trains_the_pooler(start):
    frozen = {
        objective: [
            name
            for name, each in Start(start, 32).masked_model(0, True, objective).named_parameters()
            if not each.requires_grad
        ]
        for objective in (False, True)
    }
    pooler = ["bert.pooler.dense.weight", "bert.pooler.dense.bias"]
    only_next = Start(start, 32).masked_model(0, True, next_sentence=True, masked_words=False)
    kept = {name for name, each in only_next.named_parameters() if not each.requires_grad}
    assert kept
    assert all(name.startswith("cls.predictions.") for name in kept)
    assert frozen == {
        True: [],
        False: [*pooler, "cls.seq_relationship.weight", "cls.seq_relationship.bias"],
    }


@pytest.mark.slow
def test_pretraining_resumes_and_can_be_fine_tuned(start, tmp_path):
    config = write_config(tmp_path, 24)
    for name, stops in (("whole", []), ("parts", [3, 8])):
        for stop in stops:
            train(make_session(config, "tcp", output=tmp_path / name), stop_after(stop), SILENT, "")
        train(make_session(config, "tcp", output=tmp_path / name), lambda: False, SILENT, "")
    whole, parts = (tmp_path / name / "model.safetensors" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
    rows = (tmp_path / "whole/training/curve.csv").read_text().splitlines()[1:]
    losses = [float(row.split(",")[1]) for row in rows]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    assert "pipeline_tag: fill-mask" in (tmp_path / "whole/README.md").read_text()
    tuned, before = (
        Start(str(tmp_path / "whole"), 32).model("mono", 2, 0.1, True),
        Start(start, 32).masked_model(0, True),
    )
    plain = BertForPreTraining.from_pretrained(tmp_path / "whole")
    assert torch.equal(tuned.bert.pooler.dense.weight, before.bert.pooler.dense.weight)
    words = tuned.bert.embeddings.word_embeddings.weight
    assert torch.equal(words, plain.bert.embeddings.word_embeddings.weight)
    assert not torch.equal(words, before.bert.embeddings.word_embeddings.weight)


@pytest.mark.slow
def test_unpacked_passages_are_inputs_of_their_own(start, tmp_path):
    config = write_config(tmp_path, 1)
    for pack, passages, line in (
        (False, 1, "`[CLS] passage [SEP]`"),
        (True, 6, "`[CLS] A [SEP] B [SEP]`"),
    ):
        session = make_session(config, "tcp", [f"pack={pack}"], tmp_path / str(pack))
        assert len(next(session.source.stream(0))[0].docs) == passages
        train(session, lambda: False, SILENT, "")
        assert line in (tmp_path / str(pack) / "README.md").read_text()


def test_next_sentence_needs_pairs_of_inputs(start, tmp_path):
    config = write_config(tmp_path)
    with pytest.raises(ConfigError, match=r"batch_size is 6, .* 4: "):
        make_session(
            config,
            "tcp",
            ["objective={masked_words: 1, next_sentence: 1}", "optimizer.accumulation=2"],
        )


def test_pretraining_refuses_a_vocabulary_without_mask(start, tmp_path):
    words = ["[MASKED]" if word == "[MASK]" else word for word in WORDS]
    save_tokenizer(Path(start), words)
    (Path(start) / "tokenizer.json").unlink()
    with pytest.raises(PreflightError, match=r"\[MASK\]"):
        make_session(write_config(tmp_path), "tcp")


def test_tcp_recipe_reads_only_a_corpus(start, tmp_path):
    config = str(write_config(tmp_path))
    optimizer = load_train_config(config, "tcp", ["recipe=tcp", "optimizer={}"]).optimizer
    assert (optimizer.learning_rate, optimizer.steps, optimizer.batch_size) == (5e-5, 100_000, 128)
    with pytest.raises(ConfigError, match=r"recipe: tcp .*mono"):
        load_train_config(config, "mono", ["recipe=tcp"])
    with pytest.raises(ConfigError, match=r"recipe: msmarco .*tcp"):
        load_train_config(config, "tcp", ["recipe=msmarco"])
    with pytest.raises(ConfigError, match="pack: "):
        load_train_config(config, "mono", ["pack=true", "data.triples=t.tsv", "data.corpus=null"])
    for other in (
        "data.topics={path: topics.tsv, format: tsv}",
        "data.qrels=qrels.txt",
        "data.run=run.trec",
    ):
        with pytest.raises(ConfigError, match="tcp"):
            load_train_config(config, "tcp", [other])
    with pytest.raises(ConfigError, match="corpus"):
        load_train_config(config, "tcp", ["data={}"])

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertForPreTraining

from beamrank.errors import ConfigError, DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig
from beamrank.progress import SILENT
from models.training.config import load_train_config
from models.training.data.examples import Group
from models.training.initial_model import Start
from models.training.pretraining import CorpusSource, MaskedTask
from tests.support.training import COLOURS, THINGS, WORDS, make_session, save_start, save_tokenizer, stop_after


@pytest.fixture
def start(tmp_path: Path) -> str:
    return save_start(tmp_path / "start")


def write_config(folder: Path, steps: int = 40) -> Path:
    passages = [f"the {thing} is {colour}" for thing, colour in zip(THINGS, COLOURS, strict=True)] * 3
    lines = [f"d{number}\t{text}" for number, text in enumerate(passages)]
    (folder / "corpus.tsv").write_text("\n".join([*lines, "broken", ""]))
    (folder / "tcp.yaml").write_text(
        "start: start\ndata: {corpus: {path: corpus.tsv, format: tsv}}\nthreads: 1\noutput: out\n"
        f"optimizer: {{learning_rate: 0.003, steps: {steps}, batch_size: 10, dropout: 0}}\n"
        "input: {max_query_length: 10, max_length: 32}\n"
    )
    return folder / "tcp.yaml"


def test_corpus_source_shuffles_and_resumes_anywhere(tmp_path):
    lines = [f"d{number}\tpassage {number}" for number in range(2500)]
    lines[10] = "broken"
    for part in range(2):
        (tmp_path / f"part{part}.tsv").write_text("\n".join(lines[part * 1250 : (part + 1) * 1250]) + "\n")
    source = CorpusSource(CorpusConfig(path=str(tmp_path), format="tsv"), 100, seed=0)
    whole = list(islice(source.stream({}), 5200))
    first, second = ([group.docs[0] for group, _ in whole[start : start + 2499]] for start in (0, 2499))
    assert len(set(first)) == 2499
    assert sorted(first) == sorted(second)
    assert first != second
    for at in (0, 998, 999, 1248, 1249, 1250, 2247, 2498, 2499, 4000):
        assert list(islice(source.stream(whole[at][1]), 300)) == whole[at + 1 : at + 301]
    assert ": 1;" in source.notes(whole[2498][1])[0]


def test_corpus_source_counts_unusable_rows_once(tmp_path):
    """The last two lines are a block of their own, after the last passage."""
    path = tmp_path / "corpus.tsv"
    path.write_text("d0\tone\nd1\ttwo\nd2\t" + "long " * 220_000 + "\nd3\t\nbroken\n")
    corpus = CorpusConfig(path=str(path), format="tsv")
    source = CorpusSource(corpus, 1, seed=0)
    whole = list(islice(source.stream({}), 9))
    assert source.notes(whole[2][1]) == []
    for place in (3, 8):
        assert source.notes(whole[place][1]) == [
            "invalid rows of the corpus: 1; ignored",
            "empty passages of the corpus: 1; ignored",
        ]
    for place in range(8):
        assert list(islice(source.stream(whole[place][1]), 8 - place)) == whole[place + 1 :]
    with pytest.raises(DataError, match=r"data\.max_bad_rows \(0\) .* is .*corpus\.tsv at byte \d+: the row has 1 col"):
        list(islice(CorpusSource(corpus, 0, seed=0).stream({}), 9))


def test_corpus_source_refuses_a_corpus_that_was_emptied(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("d0\tone\nd1\ttwo\n")
    source = CorpusSource(CorpusConfig(path=str(path), format="tsv"), 0, seed=0)
    stream = source.stream(next(source.stream({}))[1])
    path.write_text("d0\t\nd1\t\ndddd\t\n")
    with pytest.raises(DataError, match="has no usable passage"):
        next(stream)


def test_masking_hides_fifteen_percent_as_bert(start):
    loaded = Start(start, 32)
    task = MaskedTask(loaded.masked_model(0.0, True), loaded.tokenizer, start, 32, 512, "cpu", torch.float32, 0)
    ids = list(range(5, 25))
    guessed, masked, same = 0, 0, 0
    for number in range(2000):
        shown, wanted = task._hide(ids, number)
        assert (shown[0], shown[-1]) == (WORDS.index("[CLS]"), WORDS.index("[SEP]"))
        hidden = np.flatnonzero(wanted != -100)
        assert [wanted[place] for place in hidden] == [ids[place - 1] for place in hidden]
        guessed += len(hidden)
        masked += int((shown[hidden] == WORDS.index("[MASK]")).sum())
        same += int((shown[hidden] == wanted[hidden]).sum())
    assert guessed == 2000 * 3
    assert masked / guessed == pytest.approx(0.8 + 0.1 / len(WORDS), abs=0.03)
    assert same / guessed == pytest.approx(0.1 + 0.1 / len(WORDS), abs=0.03)


def test_masked_loss_is_cross_entropy_of_masked_words(start):
    loaded = Start(start, 32)
    model = loaded.masked_model(0.0, True).eval()
    task = MaskedTask(model, loaded.tokenizer, start, 32, 16, "cpu", torch.float32, 3)
    texts = ["the sky is blue", "the grass is green and blue", "snow"]
    found = task.loss([Group("", (text,), None) for text in texts], 7).item()
    losses = []
    for number, text in enumerate(texts):
        shown, wanted = task._hide(loaded.tokenizer.encode([text], 30).ids[0].as_py(), 7 + number)
        logits = model(input_ids=torch.from_numpy(shown)[None]).prediction_logits[0]
        chosen = torch.from_numpy(wanted) != -100
        losses += (-torch.log_softmax(logits[chosen], -1)[range(int(chosen.sum())), wanted[wanted != -100]]).tolist()
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


def test_pretraining_resumes_and_can_be_fine_tuned(start, tmp_path):
    config = write_config(tmp_path)
    for name, stops in (("whole", []), ("parts", [7, 20])):
        for stop in stops:
            make_session(config, "tcp", output=tmp_path / name).train(stop_after(stop), SILENT, "")
        make_session(config, "tcp", output=tmp_path / name).train(lambda: False, SILENT, "")
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


def test_pretraining_refuses_a_vocabulary_without_mask(start, tmp_path):
    words = ["[MASKED]" if word == "[MASK]" else word for word in WORDS]
    save_tokenizer(Path(start), words)
    with pytest.raises(PreflightError, match=r"has no \[MASK\]"):
        make_session(write_config(tmp_path), "tcp")


def test_tcp_recipe_reads_only_a_corpus(start, tmp_path):
    config = str(write_config(tmp_path))
    optimizer = load_train_config(config, "tcp", ["recipe=tcp", "optimizer={}"]).optimizer
    assert (optimizer.learning_rate, optimizer.steps, optimizer.batch_size) == (5e-5, 100_000, 128)
    with pytest.raises(ConfigError, match="tcp is not for mono"):
        load_train_config(config, "mono", ["recipe=tcp"])
    with pytest.raises(ConfigError, match="msmarco is not for tcp"):
        load_train_config(config, "tcp", ["recipe=msmarco"])
    for other in ("data.topics={path: topics.tsv, format: tsv}", "data.qrels=qrels.txt", "data.run=run.trec"):
        with pytest.raises(ConfigError, match="tcp reads only a corpus"):
            load_train_config(config, "tcp", [other])
    with pytest.raises(ConfigError, match=r"there is nothing to train on: give corpus \(corpus missing\)"):
        load_train_config(config, "tcp", ["data={}"])

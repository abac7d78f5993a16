import functools
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from beamrank.demo.collection import demo_questions, held_out_objects, stdlib_docs
from beamrank.errors import DataError, PreflightError
from beamrank.ranking.input_layout import InputLimits
from experiments.embedded_pair.data import (
    Collection,
    Question,
    cut_windows,
    read_medquad,
    read_nfcorpus,
    read_squad,
    read_stdlib,
)
from experiments.embedded_pair.distil import duo_loss, mono_loss, random_pairs, taught_by
from experiments.embedded_pair.mining import count_words, mine_groups, weigh_words
from experiments.embedded_pair.teacher import embed_texts
from models.training.data.encoding import InputEncoder
from models.training.data.examples import FixedSource, Group
from models.training.initial_model import Start, save_checkpoint
from models.training.loop.distributed import Processes
from models.training.loop.state import StateFolder
from models.training.loop.tasks import DuoTask, MonoTask, Scorer, Task
from models.training.loop.trainer import Schedule, Trainer
from tests.support.bert import MINILM
from tests.support.training import Quiet, make_scorer, save_start

ENCODER = functools.partial(InputEncoder, limits=InputLimits("original", 34, 64), token_budget=1024)


def embed_by_letters(texts):
    """A stand-in encoder whose cosines can be told by eye: how often each letter occurs."""
    counts = np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float32)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_nothing_that_answers_a_question_of_the_demo_is_trained_on():
    collection = read_stdlib(10_000, seed=0)
    names = {passage.split(":", 1)[0] for passage in collection.passages}
    assert len(names) > 4000
    assert not names & held_out_objects()
    assert not {question.text for question in collection.questions} & {question.text for question in demo_questions()}


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_shipped_pair_prefers_the_docs_that_answer(kind):
    start = Start(f"embedded:{kind}", 64)
    model = start.model(kind, 2, 0.0, train_word_embeddings=True)
    score = Scorer(model, ENCODER(start.tokenizer), "cpu", torch.float32)
    texts = {doc.doc_id: doc.text for doc in stdlib_docs()}
    triples = [
        (question.text, texts[f"{question.answers[0]}:0"], other)
        for question, other in zip(demo_questions(), list(texts.values())[::1000], strict=False)
    ]
    assert len(triples) == 9
    with torch.inference_mode():
        if kind == "duo":
            margins = score(triples) - score([(query, other, answer) for query, answer, other in triples])
        else:
            margins = score([each[:2] for each in triples]) - score([(query, other) for query, _, other in triples])
    assert int((margins > 0).sum()) >= 8


def test_windows_hold_all_words_in_order():
    text = " ".join(f"Sentence {n} has a handful of words in it." for n in range(40))
    windows = cut_windows(text, random.Random(3))
    assert len(windows) > 1
    assert " ".join(windows) == text


@pytest.mark.data
def test_a_squad_question_is_answered_by_its_window(shared_data):
    collection = read_squad(str(shared_data / "squad_v1.1.tar.gz"), articles=2, questions=50, seed=0)
    assert len(collection.questions) == 50
    assert all(question.labelled and collection.passages[question.passage] for question in collection.questions)
    again = read_squad(str(shared_data / "squad_v1.1.tar.gz"), articles=2, questions=50, seed=0)
    assert again == collection


@pytest.mark.data
def test_an_archive_of_another_collection_is_refused(shared_data):
    with pytest.raises(PreflightError, match=r"medquad\.tar\.gz: is it squad's archive"):
        read_squad(str(shared_data / "medquad.tar.gz"), articles=2, questions=50, seed=0)
    with pytest.raises(PreflightError, match="is it medquad's archive"):
        read_medquad(str(shared_data / "squad_v1.1.tar.gz"), files=2, questions=50, seed=0)


def test_a_group_holds_its_own_passage_first_and_hard_negatives():
    passages = [f"{word} {word} filler number {n}" for n, word in enumerate(["apple", "banana", "cherry"] * 20)]
    collection = Collection("fruit", passages, [Question("an apple", 0, True), Question("cherry cherry", 2, False)])
    groups = mine_groups(collection, embed_by_letters, seed=0)
    assert [group.docs[0] for group in groups] == [passages[0], passages[2]]
    assert [group.relevant is not None for group in groups] == [True, False]
    assert groups[0].relevant == (True,) + (False,) * 7
    assert all(len(set(group.docs)) == 8 for group in groups)
    by_bm25 = groups[0].docs[1:5]
    assert sum("apple" in passage for passage in by_bm25) >= 1
    weights, vocabulary = weigh_words(passages)
    bm25 = (count_words(["an apple"], vocabulary) @ weights.T).toarray()[0]
    cosines = embed_by_letters(list(groups[0].docs)) @ embed_by_letters(["an apple"])[0]
    assert groups[0].teacher_scores == pytest.approx(
        cosines + 0.04 * bm25[[passages.index(doc) for doc in groups[0].docs]], rel=1e-5
    )


def test_too_few_passages_to_choose_from_are_said():
    collection = Collection("fruit", ["an apple"] * 12, [Question("apple", 0, True)])
    with pytest.raises(DataError, match="fruit has 12 passages, and negatives are chosen from"):
        mine_groups(collection, embed_by_letters, seed=0)


def test_another_relevant_passage_is_no_negative():
    passages = [f"apple number {n}" for n in range(40)]
    collection = Collection("fruit", passages, [Question("apple", 0, True, frozenset(range(12)))])
    (group,) = mine_groups(collection, embed_by_letters, seed=0)
    assert len(group.docs) == 8
    assert set(group.docs[1:]) <= set(passages[12:])


@pytest.mark.data
def test_nfcorpus_gives_the_queries_of_train_and_no_other(shared_data):
    archive = shared_data / "nfcorpus" / "nfcorpus.zip"
    collection = read_nfcorpus(str(archive), questions=5000, seed=0)
    assert len(collection.passages) == 3633
    assert 2500 < len(collection.questions) < 2590
    assert all(question.passage in question.others for question in collection.questions)
    with zipfile.ZipFile(archive) as folder:
        queries = {row["_id"]: row["text"] for row in map(json.loads, folder.open("nfcorpus/queries.jsonl"))}
        test = folder.read("nfcorpus/qrels/test.tsv").decode().splitlines()[1:]
    shared = {queries[line.split("\t")[0]] for line in test} & {question.text for question in collection.questions}
    assert not shared


def test_a_mono_teaches_by_its_log_odds(tmp_path):
    start, mono = save_start(tmp_path / "start"), str(tmp_path / "mono")
    save_checkpoint(make_scorer(start, "mono").model, start, mono, "float32")
    (group,) = taught_by(mono, [Group("what is sky", ("blue", "red"), None, (0.0, 0.0))], ENCODER)
    assert group.teacher_scores == pytest.approx(
        [log_odds(mono, "mono", "what is sky", doc) for doc in ("blue", "red")], abs=1e-5
    )


def train(task: Task, groups: list[Group], start: str, output: Path) -> str:
    schedule = Schedule(steps=150, groups_a_step=4, learning_rate=1e-3, warmup_steps=8, weights="float16")
    states = StateFolder(str(output / "training"), {}, Processes())
    source = FixedSource(groups, 0)
    Trainer(task, source, schedule, start, str(output), states, Processes(), Quiet()).train(lambda: False)
    return str(output)


def log_odds(folder: str, kind: str, *texts: str) -> float:
    with torch.inference_mode():
        return float(make_scorer(folder, kind)([texts]))


def test_mono_learns_a_few_groups_and_duo_goes_on_from_it(tmp_path):
    known, unknown = (True, False, False, False), None
    sky = Group("what is sky", ("blue", "red", "green", "red red"), known, (0.9, 0.2, 0.1, 0.1))
    grass = Group("what is grass", ("green", "red", "blue", "red red"), unknown, (0.8, 0.2, 0.1, 0.0))
    start = save_start(tmp_path / "start")
    mono = train(MonoTask(make_scorer(start, "mono"), mono_loss(0.5)), [sky, grass], start, tmp_path / "mono")
    assert log_odds(mono, "mono", "what is sky", "blue") > log_odds(mono, "mono", "what is sky", "green") + 3
    assert log_odds(mono, "mono", "what is grass", "green") > log_odds(mono, "mono", "what is grass", "blue") + 3

    pairs = functools.partial(random_pairs, seed=0)
    taught = taught_by(mono, [sky, grass], ENCODER)
    duo = train(DuoTask(make_scorer(mono, "duo"), duo_loss, pairs), taught, mono, tmp_path / "duo")
    assert log_odds(duo, "duo", "what is sky", "blue", "green") > 1
    assert log_odds(duo, "duo", "what is sky", "green", "blue") < -1


def test_pairs_are_drawn_anew_and_asked_in_both_orders():
    group = Group("q", tuple("abcdefgh"), None, (0.0,) * 8)
    drawn = [random_pairs(group, number, seed=0) for number in range(50)]
    assert all(sorted(pairs) == sorted((j, i) for i, j in pairs) for pairs in drawn)
    assert all(len(set(pairs)) == 8 for pairs in drawn)
    assert len({pair for pairs in drawn for pair in pairs}) == 56


def test_the_teachers_vectors_tell_texts_apart():
    dog, puppy, bond = embed_texts(str(MINILM), ["a dog barks", "the puppy barked", "yields of municipal bonds"])
    assert np.linalg.norm(dog) == pytest.approx(1, rel=1e-5)
    assert dog @ puppy > 0.5 > 0.3 > dog @ bond

"""The recipe of the embedded pair: what it reads, and its command."""

import random

import numpy as np
import pytest

from beamrank.demo.collection import demo_questions, held_out_objects
from beamrank.errors import DataError, PreflightError
from experiments.embedded_pair import questions as q
from experiments.embedded_pair.__main__ import main
from experiments.embedded_pair.bi_encoder import BiEncoder
from experiments.embedded_pair.figures import compare_means
from experiments.embedded_pair.measured import read_articles, read_medical
from experiments.embedded_pair.mining import mine_groups
from experiments.embedded_pair.questions import Question, Questions
from experiments.embedded_pair.tuning import tune
from models.training.data.groups import Group
from tests.support.checkpoints import MINILM
from tests.support.progress import RecordedProgress
from tests.support.training import save_start

pytestmark = pytest.mark.slow


def test_docstring_questions_leave_out_what_the_demo_asks():
    found = q.docstring_questions(10_000, seed=0)
    names = {passage.split(":", 1)[0] for passage in found.passages}
    assert len(names) > 4000
    assert not names & held_out_objects()
    assert not {one.text for one in found.questions} & {one.text for one in demo_questions()}


def test_windows_hold_all_words_in_order():
    text = " ".join(f"Sentence {n} has a handful of words in it." for n in range(40))
    windows = q.cut_windows(text, random.Random(3))
    assert len(windows) > 1
    assert " ".join(windows) == text


@pytest.mark.data
def test_questions_are_sampled_by_seed(shared_data):
    squad, medquad, nfcorpus = ("squad_v1.1.tar.gz", "medquad.tar.gz", "nfcorpus/nfcorpus.zip")
    made = [
        q.squad_questions(str(shared_data / squad), 2, 50, seed=0),
        q.medquad_questions(str(shared_data / medquad), 50, 40, seed=0),
        q.nfcorpus_questions(str(shared_data / nfcorpus), 5000, seed=0),
    ]
    assert q.squad_questions(str(shared_data / squad), 2, 50, seed=0) == made[0]
    assert [len(each.questions) for each in made[:2]] == [50, 40]
    assert 2500 < len(made[2].questions) < 2590
    assert len(made[2].passages) == 3633
    assert all(one.passage in one.others for each in (made[0], made[2]) for one in each.questions)
    with pytest.raises(PreflightError, match=r"medquad\.tar\.gz .*SQuAD"):
        q.squad_questions(str(shared_data / medquad), 2, 50, seed=0)


def test_mined_groups_hold_no_relevant_negative():
    passages = [
        f"{word} {word} filler number {n}"
        for n, word in enumerate(["apple", "banana", "cherry"] * 20)
    ]
    others = frozenset(range(0, 12, 3))
    found = Questions(
        "fruit", passages, [Question("an apple", 0, others), Question("cherry cherry", 2)]
    )
    groups = mine_groups(found, seed=0)
    assert [group.docs[0] for group in groups] == [passages[0], passages[2]]
    assert all(len(set(group.docs)) == 8 for group in groups)
    assert any("apple" in passage for passage in groups[0].docs[1:5])
    assert not set(groups[0].docs[1:]) & {passages[place] for place in others}
    with pytest.raises(DataError, match=r"fruit .*12 "):
        mine_groups(Questions("fruit", passages[:12], [Question("apple", 0)]), seed=0)


def test_tuned_bi_encoder_prefers_the_passages_of_questions(tmp_path):
    groups = [
        Group(f"number {n}", (f"{word} is wanted", f"{n} is {word}"), None, None)
        for n, word in enumerate(["apple", "river", "engine", "violin"] * 16)
    ]
    told = RecordedProgress()
    collections = {str(number): groups for number in range(12)}
    tune(str(MINILM), collections, ["a song", "three boats"], tmp_path, 0, told)

    def margin(folder):
        encoder = BiEncoder(str(folder))
        queries = encoder.queries([group.query for group in groups])
        docs = [encoder.docs([group.docs[place] for group in groups]) for place in (0, 1)]
        return (queries * (docs[0] - docs[1])).sum(axis=1).mean()

    assert [done for done, *_ in told.updates] == list(range(1, 13))
    assert margin(tmp_path) > margin(MINILM) + 0.01


@pytest.mark.data
def test_measured_medical_questions_are_in_no_training(shared_data):
    archive = shared_data / "medquad.tar.gz"
    measured = {topic.text for topic in read_medical(archive).topics}
    trained = {one.text for one in q.medquad_questions(str(archive), 10_000, 100_000, 0).questions}
    assert len(measured) > 1000
    assert not measured & trained


@pytest.mark.data
def test_articles_are_cacm_with_its_judged_topics(shared_data):
    articles = read_articles(shared_data / "cacm")
    assert (len(articles.passages), len(articles.topics)) == (3204, 52)
    judged = {doc_id for levels in articles.qrels.values() for doc_id in levels}
    assert judged <= {doc.doc_id for doc in articles.passages}


@pytest.mark.data
def test_headings_of_car_name_their_paragraphs(shared_data):
    found = q.car_questions(str(shared_data / "trec_car_test200.tar.gz"), 5000, seed=0)
    assert (len(found.questions), len(found.passages)) == (1860, 4689)
    assert all(one.passage in one.others for one in found.questions)
    assert not any("%20" in one.text for one in found.questions)


def test_means_are_compared_with_the_first_cascade():
    rng = np.random.default_rng(0)
    bm25 = rng.random(50)
    mono = bm25 + 0.1
    rows = compare_means([{"first": bm25, "mono": mono, "same": mono}] * 2)
    assert [row["difference"] for row in rows] == [-0.1, 0.0, 0.0]
    assert rows[0]["low"] == rows[0]["high"] == -0.1
    assert rows[1]["nDCG@10"] == pytest.approx(bm25.mean() + 0.1, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"bi-encoder": "nowhere"}, 3, "there is no checkpoint folder"),
        ({"bi-encoder": "embedded:mono"}, 2, "is not an encoder without a classifier"),
        ({"output": "."}, 2, "exists: remove it, or give another folder"),
        ({"squad": "nowhere.tar.gz"}, 3, "nowhere.tar.gz"),
        ({"mono": "other"}, 2, "is not a mono of this recipe"),
        ({"mono": "embedded:duo"}, 2, "is not a mono of this recipe"),
    ],
)
def test_recipe_command_reports_what_is_wrong(tmp_path, monkeypatch, capsys, change, code, message):
    monkeypatch.chdir(tmp_path)
    save_start(tmp_path / "other")
    if "mono" in change:
        monkeypatch.setattr("experiments.embedded_pair.__main__._read", lambda _: {})
    names = ("squad", "medquad", "nfcorpus")
    given = {
        "bi-encoder": str(MINILM),
        "output": "made",
        **dict.fromkeys(names, "archive"),
        **change,
    }
    monkeypatch.setattr(
        "sys.argv",
        ["embedded_pair", "duo", *(f"--{name}={value}" for name, value in given.items())],
    )
    assert main() == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "made").exists()

"""The recipe of the embedded pair: what it reads, and its command."""

import random

import numpy as np
import pytest

from beamrank.demo.collection import demo_questions, held_out_objects
from beamrank.errors import DataError, PreflightError
from experiments.embedded_pair import questions as q
from experiments.embedded_pair.__main__ import main
from experiments.embedded_pair.mining import mine_groups
from experiments.embedded_pair.questions import Question, Questions
from tests.support.checkpoints import MINILM
from tests.support.training import save_start

pytestmark = pytest.mark.slow


def embed_by_letters(texts):
    """A stand-in encoder: how often each letter occurs."""
    counts = np.array(
        [[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts],
        np.float32,
    )
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


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
    groups = mine_groups(found, embed_by_letters, seed=0)
    assert [group.docs[0] for group in groups] == [passages[0], passages[2]]
    assert all(len(set(group.docs)) == 8 for group in groups)
    assert any("apple" in passage for passage in groups[0].docs[1:5])
    assert not set(groups[0].docs[1:]) & {passages[place] for place in others}
    with pytest.raises(DataError, match=r"fruit .*12 "):
        mine_groups(
            Questions("fruit", passages[:12], [Question("apple", 0)]), embed_by_letters, seed=0
        )


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
        monkeypatch.setattr("experiments.embedded_pair.__main__._mine", lambda *_: [])
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

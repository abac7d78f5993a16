"""The command that makes the embedded pair, on archives of a few of the library's docs."""

import io
import json
import tarfile
import zipfile

import pytest
import torch
from safetensors.torch import load_file

from beamrank.demo.collection import stdlib_docs
from experiments.embedded_pair.__main__ import main
from models.checkpoints.sources import locate
from tests.support.bert import MINILM

pytestmark = pytest.mark.slow

TEXTS = [doc.text for doc in stdlib_docs()[:4000:25]]
QUESTIONS = [f"what is said of {text.split()[1]}" for text in TEXTS]


def tarred(path, name, content):
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content.encode())
        tar.addfile(member, io.BytesIO(content.encode()))
    return path


def squad_page(texts, questions):
    return "".join(
        f'<div class="para-wrap"><pre>{text}</pre><div class="qa-wrap"><i class="question">{question}</i>'
        f'<i class="answer">{text.split()[1]}</i></div></div>'
        for text, question in zip(texts, questions, strict=True)
    )


def nfcorpus(path):
    with zipfile.ZipFile(path, "w") as folder:
        rows = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(TEXTS[80:120])]
        folder.writestr("nfcorpus/corpus.jsonl", "\n".join(map(json.dumps, rows)))
        rows = [{"_id": f"q{n}", "text": question} for n, question in enumerate(QUESTIONS[80:90])]
        folder.writestr("nfcorpus/queries.jsonl", "\n".join(map(json.dumps, rows)))
        for split, numbers in (("train", range(8)), ("dev", [8]), ("test", [9])):
            judged = "".join(f"q{number}\td{number}\t1\n" for number in numbers)
            folder.writestr(f"nfcorpus/qrels/{split}.tsv", f"query-id\tcorpus-id\tscore\n{judged}")
    return path


def rewritten(path, name, content):
    """The same zip, but for one member."""
    with zipfile.ZipFile(path) as folder:
        members = {member: folder.read(member) for member in folder.namelist()}
    with zipfile.ZipFile(path, "w") as folder:
        for member, kept in members.items():
            folder.writestr(member, content if member.endswith(name) else kept)


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """All three, as arguments; of the library few docs are read too."""
    docs = stdlib_docs()[:200:2]
    monkeypatch.setattr("experiments.embedded_pair.data.stdlib_docs", lambda: docs)
    escaped = [text.replace("&", "&amp;").replace("<", "&lt;") for text in TEXTS]
    answers = "".join(
        f"<QAPair><Question>{question}</Question><Answer>{text}</Answer></QAPair>"
        for question, text in zip(QUESTIONS[40:80], escaped[40:80], strict=True)
    )
    return {
        "squad": tarred(tmp_path / "squad.tar.gz", "squad/train/a.html", squad_page(escaped[:40], QUESTIONS[:40])),
        "medquad": tarred(tmp_path / "medquad.tar.gz", "medquad/a.xml", f"<Document>{answers}</Document>"),
        "nfcorpus": nfcorpus(tmp_path / "nfcorpus.zip"),
    }


@pytest.fixture
def run(archives, tmp_path, monkeypatch, capsys):
    """Runs the command with some options; gives its exit code and what it printed."""

    def run(model, **options):
        given = {**archives, "teacher": MINILM, "output": tmp_path / "output", "threads": torch.get_num_threads()}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**given, **options}.items()]
        monkeypatch.setattr("sys.argv", ["embedded", model, *flags])
        return main(), capsys.readouterr().err

    return run


def test_a_mono_that_is_trained_for_no_step_is_what_it_was(run, tmp_path):
    shipped, _ = locate("embedded:mono")
    code, printed = run("mono", start="embedded:mono", questions=20)
    assert code == 0
    assert "nfcorpus: negatives of 4 questions are chosen from 40 passages" in printed
    made, known = (load_file(f"{folder}/model.safetensors") for folder in (tmp_path / "output", shipped))
    assert made.keys() == known.keys()
    assert all(torch.equal(made[name], known[name]) for name in known)

    code, printed = run("mono", start="embedded:mono", questions=20)
    assert code == 0
    assert printed.endswith("was made by the same command before: remove it to make it again\n")
    code, printed = run("mono", start="embedded:mono", questions=20, seed=1)
    assert code == 2
    assert "seed: 0 there, 1 now" in printed


@pytest.mark.parametrize(
    ("model", "options", "code", "said"),
    [
        ("mono", {"start": "nowhere"}, 3, "there is no checkpoint folder"),
        ("mono", {"start": MINILM, "max_length": 600}, 3, "knows 512 positions"),
        ("mono", {"start": MINILM, "teacher": "embedded:mono"}, 2, "is no bi-encoder"),
        ("duo", {"start": "embedded:duo"}, 2, "no mono that this version wired"),
        ("mono", {"start": MINILM, "squad": "nowhere.tar.gz"}, 3, "nowhere.tar.gz"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(run, tmp_path, model, options, code, said):
    ended, printed = run(model, **options)
    assert ended == code
    assert printed.splitlines()[-1].startswith("error: ")
    assert said in printed
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("name", ["squad", "medquad", "nfcorpus"])
@pytest.mark.parametrize("part", [0, 0.6])
def test_an_archive_that_cannot_be_read_is_named(run, archives, tmp_path, name, part):
    archive = archives[name]
    content = archive.read_bytes()
    archive.write_bytes(content[: round(part * len(content))] or b"a page that says: not found")
    code, printed = run("mono", start=MINILM)
    assert code == 3
    assert f"{archive} cannot be read" in printed
    assert not (tmp_path / "output").exists()


ONE_PAGE = squad_page(["a b"], ["c"])


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("squad", lambda path: tarred(path, "squad/train/a.html", ONE_PAGE.replace('"answer', '"x')), "without class"),
        ("squad", lambda path: tarred(path, "squad/dev/a.html", ONE_PAGE), "is it squad's archive?"),
        ("medquad", lambda path: tarred(path, "medquad/a.xml", "<Document><QAPair>"), "ParseError: no element found"),
        ("nfcorpus", lambda path: rewritten(path, "corpus.jsonl", b"{}"), "KeyError: '_id'"),
        ("nfcorpus", lambda path: rewritten(path, "queries.jsonl", b"\xff"), "UnicodeDecodeError: "),
        ("nfcorpus", lambda path: rewritten(path, "qrels/dev.tsv", b"-\n1 2 3"), "ValueError: not enough values"),
    ],
)
def test_an_archive_of_something_else_is_named(run, archives, tmp_path, name, write, said):
    write(archives[name])
    code, printed = run("mono", start=MINILM)
    assert code == 3
    assert str(archives[name]) in printed
    assert said in printed
    assert not (tmp_path / "output").exists()


def test_too_few_questions_to_compare_embeddings_by_are_said(run):
    code, printed = run("mono", start=MINILM, questions=20)
    assert code == 1
    assert "give more --questions" in printed.splitlines()[-1]


def test_a_folder_with_another_model_is_not_written_to(run, tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "config.json").write_text("{}")
    code, printed = run("mono", start=MINILM)
    assert code == 2
    assert "holds a model that no training here has made" in printed


@pytest.mark.parametrize("option", ["threads", "questions", "articles", "files"])
def test_a_count_of_nothing_is_refused(run, option, capsys):
    with pytest.raises(SystemExit) as ended:
        run("mono", start=MINILM, **{option: 0})
    assert ended.value.code == 2
    assert f"argument --{option}: 0 is less than 1" in capsys.readouterr().err

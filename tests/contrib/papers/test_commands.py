"""`beamrank convert nfl6|squad|webap|wikipassageqa`: the folders that it writes can be run and
trained on.
"""

import json
from pathlib import Path

import pytest

from beamrank.config.load import load_config
from models.training.config import load_train_config
from tests.support.processes import refused, succeed
from tests.support.runs import read_trec

_ANSWERS = {f"{number}": f"answer {number} of tea and milk" for number in range(20)}
_ARTICLES = {
    str(article): {str(n): f"article {article}, passage {n}" for n in range(4)}
    for article in range(3)
}


def _save_nfl6(folder: Path) -> Path:
    rows = [
        {
            "main_category": "Tea",
            "question": f"what is {query_id}?",
            "nbestanswers": [text],
            "answer": text,
            "id": query_id,
        }
        for query_id, text in _ANSWERS.items()
    ]
    path = folder / "nfL6.json"
    path.write_text(json.dumps(rows))
    return path


def _save_squad(folder: Path) -> Path:
    answer = {"text": "tea", "answer_start": 0}
    questions = [
        {"id": "a", "question": "what is hot?", "answers": [answer]},
        {"id": "b", "question": "what is cold?", "answers": [], "is_impossible": True},
    ]
    paragraphs = [{"context": "tea is hot", "qas": questions}, {"context": "milk", "qas": []}]
    path = folder / "squad.json"
    path.write_text(json.dumps({"data": [{"title": "Tea", "paragraphs": paragraphs}]}))
    return path


def _save_webap(folder: Path) -> Path:
    (folder / "gradedText").mkdir()
    queries = [{"number": "701", "text": "oil"}, {"number": "715", "text": "gas"}]
    (folder / "gradedText/gov2.query.json").write_text(json.dumps({"queries": queries}))
    spans = (
        "<GOOD><SENTENCE>oil is old</SENTENCE></GOOD><NONE><SENTENCE>one two three four "
        "five</SENTENCE></NONE>"
    )
    doc = f"<DOC><DOCNO>GX1-701</DOCNO><TARGET_QID>701</TARGET_QID><TEXT>{spans}</TEXT></DOC>"
    (folder / "gradedText/grade.trectext_patched").write_text(f"<ROOT>{doc}</ROOT>")
    return folder


def _save_wikipassageqa(folder: Path) -> Path:
    (folder / "document_passages.json").write_text(json.dumps(_ARTICLES))
    for number, name in enumerate(("train", "dev", "test")):
        header = "QID\tQuestion\tDocumentID\tDocumentName\tRelevantPassages"
        (folder / f"{name}.tsv").write_text(
            f"{header}\n{number}\twhat is {number}?\t{number}\tA.html\t1,3\n"
        )
    return folder


_SAVED = {
    "nfl6": _save_nfl6,
    "squad": _save_squad,
    "webap": _save_webap,
    "wikipassageqa": _save_wikipassageqa,
}
_DEPTHS = {"nfl6": 10, "squad": 100, "webap": 100, "wikipassageqa": 4}
_NEGATIVES = {"nfl6": 2, "squad": 2, "webap": None, "wikipassageqa": 5}


@pytest.mark.parametrize("name", _SAVED)
def test_convert_writes_configurations_that_are_valid(tmp_path, name):
    output = tmp_path / "converted"
    succeed("convert", name, _SAVED[name](tmp_path), "--output", output)
    config = load_config(str(output / "config.yaml"))
    assert config.first_stage.k == _DEPTHS[name]
    training = load_train_config(str(output / "train.yaml"), "mono")
    assert (training.recipe, training.sampling.negatives) == (
        "nonfactoid",
        _NEGATIVES[name],
    )
    assert training.sampling.ranks == (1, config.first_stage.k)
    assert training.dev is not None
    assert training.dev.k == config.first_stage.k


def test_convert_prints_the_counts_of_table_1(tmp_path):
    done = succeed(
        "convert",
        "webap",
        _save_webap(tmp_path),
        "--output",
        tmp_path / "webap",
        "--format",
        "json",
    )
    sizes = json.loads(done.stdout)
    assert (sizes["queries"]["count"], sizes["docs"]["count"]) == (1, 3)
    assert sizes["docs"]["words"]["longest"] == 3
    assert sizes["qrels"]["labels"] == {"2": 1}
    assert "a relevant span: 1" in done.stderr
    assert f"beamrank run {tmp_path / 'webap/bm25.yaml'}" in done.stderr


def test_convert_refuses_a_folder_with_files(tmp_path):
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted/a").touch()
    arguments = ("convert", "nfl6", _save_nfl6(tmp_path), "--output", tmp_path / "converted")
    assert "--output" in refused(*arguments, code=3)


def test_converted_wikipassageqa_ranks_all_passages_of_the_article(tmp_path):
    succeed(
        "convert",
        "wikipassageqa",
        _save_wikipassageqa(tmp_path),
        "--output",
        tmp_path / "converted",
    )
    succeed("run", tmp_path / "converted/config.yaml", "--set", "mono=null")
    assert read_trec(tmp_path / "converted/out/runs/candidates.trec") == {
        "2": [f"2-{number}" for number in range(4)]
    }


def _candidates() -> Path:
    """The candidates of the converted collection in this folder, made by the commands in its
    config.yaml.
    """
    succeed("run", "bm25.yaml")
    comments = Path("config.yaml").read_text().splitlines()
    (command,) = [
        line.removeprefix("# beamrank ")
        for line in comments
        if line.startswith("# beamrank add-relevant")
    ]
    return Path(succeed(*command.split()).stdout.strip())


@pytest.mark.slow
@pytest.mark.jvm
def test_converted_nfl6_has_the_answer_among_ten(tmp_path, monkeypatch):
    succeed("convert", "nfl6", _save_nfl6(tmp_path), "--output", tmp_path / "converted")
    monkeypatch.chdir(tmp_path / "converted")
    ranking = read_trec(_candidates())
    assert ranking.keys() == _ANSWERS.keys()
    assert all(query_id in docs and len(docs) <= 10 for query_id, docs in ranking.items())

"""The join with a corpus of which an earlier run has read some files: they are not read again, and
no byte differs.
"""

import dataclasses
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit.check import find_garbage, remove_garbage, verify_stages
from beamrank.commit.plan import read_plan
from beamrank.commit.receipts import read_scans
from beamrank.errors import BeamrankError
from beamrank.formats.corpora import read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.storage.documents import hashes64
from pipelines.execute import run
from pipelines.plan.reuse import Reuse
from tests.support.changed_files import flip_bit
from tests.support.checkpoints import save_tiny
from tests.support.runs import assert_same_bytes, parts, trec_lines
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, small_cascade
from tests.support.tiers import slow_but

Files = dict[str, dict[str, str]]
FILES: Files = {f"{part}.jsonl": dict(list(DOCS.items())[part::5]) for part in range(5)}


class Corpus:
    """A small collection whose docs are in five files, and the names of the files that a run has
    read.
    """

    def __init__(self, folder: Path) -> None:
        self.collection = small_cascade(folder)
        self.collection.keys["corpus"] = {"path": "docs", "format": "jsonl"}
        del self.collection.keys["duo"]
        self.write(FILES)
        self.read: set[str] = set()

    def write(self, files: Mapping[str, Mapping[str, str]]) -> None:
        folder = self.collection.folder / "docs"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, docs in files.items():
            lines = (json.dumps({"id": doc_id, "contents": text}) for doc_id, text in docs.items())
            (folder / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self, output: str, reuse: Sequence[str] = (), **keys: Any) -> Path:
        self.read.clear()
        folder = self.collection.folder
        given = {key.replace("__", "."): value for key, value in keys.items()}
        run(
            str(self.collection.path),
            output=folder / output,
            reuse=[folder / each for each in reuse],
            set=given,
        )
        return folder / output

    def as_fresh(self, output: str, reuse: Sequence[str] = (), **keys: Any) -> set[str]:
        """The files that a run reads whose bytes are those of a run into an empty folder."""
        found = self.run(output, reuse, **keys)
        read = set(self.read)
        shutil.rmtree(self.collection.folder / "fresh", ignore_errors=True)
        fresh = self.run("fresh", **keys)
        plan = read_plan(str(found))
        named = [
            f"{stage.name}/{receipt.part}"
            for stage in plan.stages
            for receipt in plan.sealed(stage.name).receipts
        ]
        assert sorted(named) == parts(fresh)
        assert (found / "runs" / "mono.trec").read_bytes() == (
            fresh / "runs" / "mono.trec"
        ).read_bytes()
        assert verify_stages(str(found)).findings == []
        (tokens,) = plan.of_step("tokenize")
        scans = [
            read_scans(str(each / tokens.name), tokens.corpus_digest or "")
            for each in (found, fresh)
        ]
        assert scans[0].docs == scans[1].docs
        assert scans[0].bad_rows == scans[1].bad_rows
        assert _totals(found) == _totals(fresh)
        return read


def _totals(output: Path) -> list[int]:
    """Sums over the receipts of the join, which the number of shards does not change."""
    plan = read_plan(str(output))
    manifest = plan.sealed(plan.of_step("tokenize")[0].name)
    assert manifest is not None
    return [manifest.total(name) for name in ("queries", "docs", "truncated_docs", "missing_docs")]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    made = Corpus(tmp_path)

    def read_and_note(unit: CorpusUnit) -> Any:
        made.read.add(Path(unit.url).name)
        return read_unit(unit)

    monkeypatch.setattr("models.stages.tokenize.read_unit", read_and_note)
    return made


def _with(name: str, **docs: str) -> Files:
    return {**FILES, name: {**FILES[name], **docs}}


@pytest.mark.slow
def test_settings_that_need_no_other_doc_read_no_file(corpus) -> None:
    corpus.run("out", mono__k=9)
    assert corpus.read == set(FILES)
    assert corpus.as_fresh("out", mono__k=5) == set()
    assert corpus.as_fresh("out", mono__k=5, shards=3) == set()
    assert corpus.as_fresh("out", mono__k=4, shards=1, on_missing_doc="drop") == set()
    assert corpus.as_fresh("out", mono__k=9, shards=2) == set()


def test_another_tokenizer_reads_all_files(corpus, tmp_path) -> None:
    corpus.run("out")
    letters = (tmp_path / "mono" / "vocab.txt").read_text().split()
    save_tiny(tmp_path / "other", [*letters, "zz"], type_vocab_size=2)
    assert corpus.as_fresh("out", mono__checkpoint=str(tmp_path / "other")) == set(FILES)


def test_files_that_changed_are_read_and_no_others(corpus) -> None:
    corpus.run("out")
    corpus.write(_with("2.jsonl", d7="cedar delta"))
    assert corpus.as_fresh("out") == {"2.jsonl"}
    corpus.write({**_with("2.jsonl", d7="cedar delta"), "5.jsonl": {"d99": "amber"}})
    assert corpus.as_fresh("out") == {"5.jsonl"}
    # Another folder, whose files have other names and order, and of which the first has been
    # deleted since.
    corpus.write(
        {f"9{name}": docs for name, docs in reversed(_with("2.jsonl", d7="ember").items())}
    )
    assert corpus.as_fresh("new", ["out"]) == {"92.jsonl"}
    shutil.rmtree(corpus.collection.folder / "out")
    assert corpus.as_fresh("newer", ["new"], mono__k=4) == set()


def test_new_topic_reads_the_files_of_docs_without_tokens(corpus) -> None:
    corpus.run("out")
    stored = {doc_id for doc_ids in CANDIDATES.values() for doc_id in doc_ids[:6]}
    (file,) = {name for name, docs in FILES.items() if "d4" in docs}
    corpus.collection.write(
        "topics.tsv", [*(f"{key}\t{text}" for key, text in TOPICS.items()), "q77\tamber heron"]
    )
    corpus.collection.given_run({**CANDIDATES, "q77": ["d4"]})
    # A topic of which the shard has no tokens is read, even if other shards have the doc.
    assert "d4" in stored
    assert file in corpus.as_fresh("out")
    assert corpus.as_fresh("out", mono__k=5) == set()


@pytest.mark.parametrize("seed", slow_but(1, range(8)))
def test_any_changes_give_the_bytes_of_a_run_that_reads_all(corpus, seed) -> None:
    """Docs are edited, moved, removed and copied, and candidates drawn again; errors are the same
    too.
    """
    draw = random.Random(seed)
    files: Files = {name: dict(docs) for name, docs in FILES.items()}
    corpus.run("out", on_missing_doc="drop")
    for _ in range(2):
        for _ in range(draw.randrange(3)):
            name, other = draw.sample(sorted(files), 2)
            doc_id = draw.choice(sorted(files[name]))
            change = draw.randrange(4)
            text = files[name][doc_id] if change == 3 else files[name].pop(doc_id)
            if change < 3:
                files[other if change == 1 else name] |= (
                    {} if change == 2 else {doc_id: f"{text} jetty"[change == 1 :]}
                )
            else:
                files[other][doc_id] = text
        corpus.write(files)
        if draw.random() < 0.5:
            drawn = {key: draw.sample([*DOCS, "gone"], 6) for key in TOPICS}
            corpus.collection.write("given.trec", trec_lines(drawn))
        problems = []
        for output in ("out", "fresh"):
            shutil.rmtree(corpus.collection.folder / "fresh", ignore_errors=True)
            problems.append(_duplicate(partial(corpus.run, output, on_missing_doc="drop")))
        assert problems[0] == problems[1]
        assert problems[0][:6] in ("", "doc_id")
        if not problems[0]:
            corpus.as_fresh("out", on_missing_doc="drop")


def test_doc_of_an_unchanged_file_that_a_new_file_has_too_is_an_error_that_names_both(
    corpus, capsys
) -> None:
    corpus.run("out")
    doc_id = CANDIDATES["q1"][0]
    (file,) = {name for name, docs in FILES.items() if doc_id in docs}
    corpus.write({**FILES, "7.jsonl": {doc_id: "amber"}})
    message = (
        rf"doc_id '{doc_id}' appears twice in the corpus: .*{file} at byte \d+ and "
        r".*7.jsonl at byte 0"
    )
    with pytest.raises(BeamrankError, match=message):
        run(str(corpus.collection.path), quiet=False)
    assert "5 of 6 units of the corpus not read" in (shown := capsys.readouterr().err)
    assert re.search(r"the whole corpus is read for \d shards?: tokens cannot be reused", shown)


_HASHING = ("models.stages.tokenize", "models.scoring.reuse")


def _collide(monkeypatch: pytest.MonkeyPatch, doc_id: str, other: str) -> None:
    """Two docs have one hash."""
    for module in _HASHING:
        monkeypatch.setattr(f"{module}.hashes64", partial(_hashes, doc_id, other))


def _hashes(doc_id: str, other: str, texts: Sequence[str]) -> Any:
    return hashes64(other if text == doc_id else text for text in texts)


def test_hash_of_a_removed_doc_does_not_bring_its_tokens_back(corpus, monkeypatch) -> None:
    doc_id = CANDIDATES["q1"][0]
    wanted = {each for doc_ids in CANDIDATES.values() for each in doc_ids[:3]}
    file = next(name for name, docs in FILES.items() if doc_id in docs)
    other = next(
        each for name, docs in FILES.items() if name != file for each in docs if each not in wanted
    )
    _collide(monkeypatch, doc_id, other)
    corpus.run("out", mono__k=3)
    corpus.write(
        {**FILES, file: {each: text for each, text in FILES[file].items() if each != doc_id}}
    )
    corpus.as_fresh("out", mono__k=3, on_missing_doc="drop")


def test_hash_of_a_missing_doc_does_not_hide_another_doc(corpus, monkeypatch) -> None:
    doc_id = next(iter(FILES["4.jsonl"]))
    candidates = dict.fromkeys(TOPICS, list(FILES["1.jsonl"])[:2])
    _collide(monkeypatch, "gone", doc_id)
    corpus.collection.given_run({**candidates, "q1": ["gone"]})
    corpus.run("out", on_missing_doc="drop")
    corpus.collection.given_run({**candidates, "q1": [doc_id]})
    assert corpus.as_fresh("out", on_missing_doc="drop") == set(FILES)


def _duplicate(action: Callable[[], Any]) -> str:
    """What a run reports about a doc that the corpus has twice; nothing if it succeeds."""
    try:
        action()
    except BeamrankError as error:
        return re.sub(r"(?s).*(?=doc_id .* appears twice in the corpus)", "", str(error))
    return ""


@pytest.mark.parametrize(
    ("pattern", "spoil", "said"),
    slow_but(
        1,
        [
            (
                "tokenize-*/part-*",
                flip_bit,
                "whole corpus is read for 1 shard: .* reused .*does not hold the bytes",
            ),
            ("../old", shutil.rmtree, r"tokenize-\w+: not reused: .*old: it holds no beamrank run"),
            (
                "tokenize-*/scans/docs-*",
                flip_bit,
                r"not reused: .*docs-\w+\.bin changed after it was written",
            ),
            ("tokenize-*/scans/docs-*", Path.unlink, r"not reused: .*docs-\w+\.bin"),
            (
                "retrieve/part-*",
                Path.unlink,
                r"tokenize-\w+ is not finished, or files of it are missing",
            ),
        ],
    ),
)
def test_earlier_tokens_that_cannot_be_used_are_named_and_the_corpus_is_read(
    corpus, tmp_path, capsys, pattern, spoil, said
) -> None:
    old, expected = corpus.run("old"), corpus.run("expected")
    spoil(min(old.glob(pattern)))
    corpus.read.clear()
    run(str(corpus.collection.path), output=tmp_path / "new", reuse=[old], quiet=False)
    shown = capsys.readouterr().err
    assert re.search(said, shown), shown
    assert corpus.read == set(FILES)
    assert_same_bytes(tmp_path / "new", expected)


def test_note_and_receipts_count_what_is_not_read(corpus, tmp_path, capsys) -> None:
    corpus.run("old")
    corpus.write(_with("1.jsonl", d1="cedar"))
    run(str(corpus.collection.path), output=tmp_path / "new", reuse=[tmp_path / "old"], quiet=False)
    shown = capsys.readouterr().err
    assert re.search(
        r"4 of 5 units of the corpus not read: unchanged, and the tokens are reused from .*old",
        shown,
    )
    manifest = read_plan(str(tmp_path / "new")).sealed(
        read_plan(str(tmp_path / "new")).stages[1].name
    )
    assert manifest is not None
    reused, docs = manifest.total("reused_docs"), manifest.total("distinct_docs")
    changed = sum(
        doc_id in FILES["1.jsonl"] for doc_ids in CANDIDATES.values() for doc_id in set(doc_ids[:6])
    )
    assert docs - changed <= reused < docs
    assert f"{reused:,} of {docs:,} docs" in shown


def test_file_with_bad_rows_is_read_again_and_they_are_reported(corpus, capsys) -> None:
    file = corpus.collection.folder / "docs" / "3.jsonl"
    corpus.collection.keys["max_bad_rows"] = 5
    file.write_text(file.read_text() + "{}\n")
    corpus.run("out")
    capsys.readouterr()
    assert corpus.as_fresh("out", mono__k=4) == {"3.jsonl"}


def test_garbage_keeps_the_docs_of_units_that_a_plan_reads(corpus, tmp_path) -> None:
    corpus.run("out")
    corpus.write(_with("1.jsonl", d1="cedar"))
    corpus.run("out")
    (stray,) = [
        tmp_path
        / "out"
        / read_plan(str(tmp_path / "out")).stages[1].name
        / "scans"
        / f"docs-{'0' * 12}.bin"
    ]
    stray.write_bytes(b"")
    garbage = find_garbage(str(tmp_path / "out"), now=4e9, least_age_seconds=1)
    assert [each.file for each in garbage if "docs-" in each.file] == [
        str(stray.relative_to(tmp_path / "out"))
    ]
    remove_garbage(str(tmp_path / "out"), garbage)
    assert corpus.as_fresh("out", mono__k=4) == set()


def test_damaged_docs_of_a_unit_are_found_by_verify(corpus) -> None:
    output = corpus.run("out")
    flip_bit(min(output.glob("tokenize-*/scans/docs-*")))
    (finding,) = verify_stages(str(output)).findings
    assert re.fullmatch(
        r"tokenize-\w+/scans/docs-\w+\.bin: does not hold the docs of its name: delete it; .*",
        str(finding),
    )


def test_passes_are_counted_without_the_docs_that_are_reused(corpus, monkeypatch) -> None:
    corpus.run("out")
    travelling: list[int] = []

    def two_passes(docs: int, *_: Any) -> int:
        travelling.append(docs)
        return 2

    monkeypatch.setattr("pipelines.joins.join_passes", two_passes)
    corpus.write(_with("2.jsonl", d7="cedar delta"))
    assert corpus.as_fresh("out", shards=2) == {"2.jsonl"}
    assert 0 < travelling[0] < travelling[1]


def test_tokens_of_another_stored_length_are_not_reused(corpus) -> None:
    corpus.run("out")
    plan = corpus.collection.plan("mono.k=5").plan
    (record,) = plan.of_step("tokenize")
    assert Reuse(plan, ()).tokens(record)[0] is not None
    longer = dataclasses.replace(record, keys={**record.keys, "max_doc_tokens": 600})
    assert Reuse(plan, ()).tokens(longer)[0] is None


@pytest.mark.slow
def test_tokens_of_the_plan_with_the_same_corpus_are_preferred(corpus) -> None:
    corpus.run("out")
    corpus.write(
        {
            name: {each: f"{text} jetty" for each, text in docs.items()}
            for name, docs in FILES.items()
        }
    )
    assert corpus.as_fresh("out") == set(FILES)
    corpus.write(FILES)
    assert corpus.as_fresh("out", shards=3) == set()

"""Ids and texts are data: they never become paths, shell words, patterns or classes; and no
credential is kept.
"""

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from beamrank.config.load import load_config
from beamrank.errors import ConfigError
from tests.support.processes import refused, succeed
from tests.support.runs import read_trec
from tests.support.small_collection import small_cascade

_SECRET = "hunter2-never-to-be-seen"
_HOSTILE = (
    "../../escaped",
    "/etc/passwd",
    "..",
    "~root",
    "$(touch${IFS}pwned)",
    "`touch${IFS}pwned`",
    ";touch${IFS}pwned;",
    "a|b>pwned&",
    "it's",
    '"quoted"',
    "{query_id}%s%n\\n",
    "--output=pwned",
    "*?[a-z]",
    "[Ljava.lang.Runtime;",
    "java.lang.System::exit",
    "http://169.254.169.254/",
    "memory://pwned",
    "<script>alert(1)</script>",
    "\u202egnp.exe",
    "\U0001f4a9",
    "NULL",
    "-1e309",
    "x" * 3000,
)
_LUCENE = '") OR *:* AND contents:[a TO z] -- ${jndi:ldap://127.0.0.1:1/x} \\'


def _hostile_collection(folder):
    """The small collection through BM25, each query_id and doc_id a hostile one; and what each id
    stands for.
    """
    config = small_cascade(folder).path
    names = {f"q{number}": hostile for number, hostile in enumerate(_HOSTILE[:10])}
    names |= {
        f"d{number}": _HOSTILE[number % len(_HOSTILE)] + "#" * (number // len(_HOSTILE))
        for number in range(30)
    }
    docs = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    _write_jsonl(
        folder / "corpus.jsonl",
        [{"id": names[doc["id"]], "contents": doc["contents"]} for doc in docs],
    )
    topics = [line.split("\t") for line in (folder / "topics.tsv").read_text().splitlines()]
    rows = [{"query_id": names[query_id], "text": f"{text} {_LUCENE}"} for query_id, text in topics]
    _write_jsonl(folder / "topics.jsonl", rows)
    values = yaml.safe_load(config.read_text())
    del values["candidates"], values["qrels"]
    values |= {
        "topics": {"path": "topics.jsonl", "format": "jsonl"},
        "index": {"path": "index"},
        "bm25": {"k": 9},
    }
    config.write_text(yaml.safe_dump(values))
    return config, names


def _write_jsonl(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _paths(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.jvm
def test_hostile_ids_pass_through_a_run_verbatim(tmp_path, monkeypatch):
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "BEAMRANK_PASSWORD",
    ):
        monkeypatch.setenv(name, _SECRET)
    work = tmp_path / "work" / "here"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    config, names = _hostile_collection(work)
    before = _paths(tmp_path)
    ran = succeed("run", config, "--only", "0/1", "--output", "out")
    doc_ids = {name for key, name in names.items() if key.startswith("d")}
    query_ids = {name for key, name in names.items() if key.startswith("q")}
    for run in ("bm25", "mono", "duo-sum"):
        found = read_trec(work / f"out/runs/{run}.trec")
        assert found.keys() == query_ids
        assert all(
            len(ranked) == len(set(ranked)) == 9 and doc_ids.issuperset(ranked)
            for ranked in found.values()
        )
    made = {
        path
        for path in _paths(tmp_path) - before
        if not path.startswith(("work/here/index", "work/here/.index."))
    }
    assert all(re.fullmatch(r"work/here/out(/[\w.-]+)*", path) for path in made), made
    assert not any("pwned" in path or "escaped" in path for path in _paths(tmp_path))
    assert _SECRET not in ran.stdout + ran.stderr
    for command in (
        ["status", "out", "--json"],
        ["verify", "out"],
        ["aggregate", "out", "--aggregation", "min"],
    ):
        done = succeed(*command)
        assert _SECRET not in done.stdout + done.stderr
    (work / "qrels.txt").write_text(
        "".join(f"{query_id} 0 {names['d3']} 1\n" for query_id in sorted(query_ids))
    )
    measured = succeed(
        "eval", "out/runs/mono.trec", "--qrels", "qrels.txt", "--json", "--per-query"
    )
    assert json.loads(measured.stdout)["per_query"].keys() == query_ids
    succeed("report", "out", "--trials", "2", "--output", "out/report")
    kept = b"".join(path.read_bytes() for path in (work / "out").rglob("*") if path.is_file())
    assert b"<html" in kept
    assert _SECRET.encode() not in kept


@pytest.mark.parametrize("tag", ["object/apply:os.system", "object/new:os.system", "name:os"])
@pytest.mark.parametrize("where", ["file", "--set"])
def test_yaml_creates_no_objects(tmp_path, monkeypatch, tag, where):
    monkeypatch.chdir(tmp_path)
    config, value = small_cascade(tmp_path).path, f"!!python/{tag} ['touch pwned']"
    if where == "file":
        config.write_text(f"run_tag: {value}\n")
    with pytest.raises(ConfigError, match="YAML"):
        load_config(str(config), [f"run_tag={value}"] if where == "--set" else [])
    assert not os.path.exists("pwned")


def test_checkpoint_with_code_is_refused(tmp_path, monkeypatch):
    """By the command, before a run starts; tests/models/checkpoints/test_checkpoint.py has the
    other kinds of files.
    """
    monkeypatch.chdir(tmp_path)
    config = small_cascade(tmp_path).path
    (tmp_path / "mono/model.safetensors").unlink()
    (tmp_path / "mono/pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert "pytorch_model.bin" in refused("run", config, code=3)
    assert not Path("pwned").exists()
    assert not list(tmp_path.glob("out/plan-*"))

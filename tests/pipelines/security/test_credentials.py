"""A text that can carry a credential is refused before anything is opened, and never repeated."""

import json
import sys
from collections.abc import Callable

import pytest
from typer.main import get_command

from beamrank.commit.garbage import find_garbage
from beamrank.commit.plan import read_plan
from beamrank.commit.verify import verify_stages
from beamrank.config.run import load_config
from beamrank.errors import ConfigError
from beamrank.formats.corpora import list_units
from beamrank.storage.stores import StoreSettings
from beamrank.storage.urls import carries_credentials, hide_credentials, refuse_credentials
from models.checkpoints.check import resolve_checkpoint
from models.checkpoints.disk_cache import cache_root
from models.training.config import load_train_config
from pipelines import cli, main
from pipelines.console.progress import ConsoleProgress

_SECRET = "hunter2Never0Seen"
_TOKEN = f"hf_{_SECRET}AbCdEfGh"
_FORMS = (
    f"https://user:{_SECRET}@host/c",
    f"https://user:{_SECRET}@host",
    f"https://:{_SECRET}@host/c",
    f"https://{_SECRET}@host/c",
    f"https://{_SECRET}:@host/c",
    f"https://{_SECRET}:x-oauth-basic@host/c",
    f"https://user:a/{_SECRET}@host/c",
    f"https://user:{_SECRET}/b/c@host/c",
    f"https://user:12/{_SECRET}@host/c",
    f"https://user:{_SECRET}@with@host/c",
    f"https://user:{_SECRET}?x@host/c",
    f"https://user:{_SECRET}#x@host/c",
    f"https://user::{_SECRET}@host/c",
    f"https://user:a::{_SECRET}@host/c",
    f"https://user%3A{_SECRET}%40host/c",
    f"https%3A%2F%2Fuser:{_SECRET}@host/c",
    f"https%253A%252F%252Fuser:{_SECRET}@host/c",
    f"https://user:{_SECRET}\uff20host/c",
    f"https://user:{_SECRET}\\@host/c",
    f"HTTPS://USER:{_SECRET}@HOST/c",
    f"https:/user:{_SECRET}@host/c",
    f"https:user:{_SECRET}@host/c",
    f"https:\\\\user:{_SECRET}@host/c",
    f"https:///user:{_SECRET}@host/c",
    f"http://user:{_SECRET}@[::1]:80/c",
    f"https://proxy/https://user:{_SECRET}@host/c",
    f"ftp://anonymous:{_SECRET}@host/c",
    f"sftp://{_SECRET}@host/c",
    f"ssh://user:{_SECRET}@host/c",
    f"smb://domain;user:{_SECRET}@host/c",
    f"hdfs://{_SECRET}@host:8020/c",
    f"webhdfs://user:{_SECRET}@host/c",
    f"github://{_SECRET}:{_SECRET}@main/c",
    f"git://{_SECRET}@host/c",
    f"postgresql+psycopg://user:{_SECRET}@host/db",
    f"abfss://{_SECRET}@account.dfs.core.windows.net/c",
    f"s3://AKIAX:{_SECRET}@bucket/c",
    f"s3://AKIAX:sec/{_SECRET}@bucket/c",
    f"s3a://AKIAX:{_SECRET}@bucket/c",
    f"s3://{_SECRET}@bucket/c",
    f"s3://Sec/{_SECRET}@bucket/c",
    f"gs://{_SECRET}@bucket/c",
    f"gs://user:{_SECRET}@bucket/c",
    f"file://user:{_SECRET}@host/c",
    f"memory://user:{_SECRET}@host/c",
    f"simplecache::https://user:{_SECRET}@host/c",
    f"filecache::simplecache::https://{_SECRET}@host/c",
    f"zip://a.txt::https://user:{_SECRET}@host/c.zip",
    f"simplecache::s3://bucket/c?secret={_SECRET}",
    f"tar://a@{_SECRET}::https://host/c",
    f"hf://{_SECRET}@datasets/org/name",
    f"hf://user:{_SECRET}@datasets/org/name/c",
    f"hf://datasets/org/name/c?token={_SECRET}",
    f"hf://{_TOKEN}/name/c",
    f"hf://datasets/org/name@{_TOKEN}/c",
    _TOKEN,
    f"org/name@{_TOKEN}",
    f"/data/{_TOKEN}/c",
    f"https://host/{_TOKEN}/c",
    f"https://host/c?secret={_SECRET}",
    f"https://host/c?client_secret={_SECRET}",
    f"https://host/c?access_key={_SECRET}",
    f"https://host/c?pwd={_SECRET}",
    f"https://host/c?auth={_SECRET}",
    f"https://host/c?{_SECRET}",
    f"https://host/c?a=1&%74oken={_SECRET}",
    f"https://host/c%3Ftoken={_SECRET}",
    f"https://host/c%253Ftoken={_SECRET}",
    f"https://host/c;token={_SECRET}",
    f"https://host/c&token={_SECRET}",
    f"https://host/c/token={_SECRET}",
    f"https://host/c#token={_SECRET}",
    f"https://host/c#{_SECRET}",
    f"https://host?token={_SECRET}",
    f"https://bucket.s3.amazonaws.com/c?X-Amz-Credential={_SECRET}",
    f"https://bucket.s3.amazonaws.com/c?X-Amz-Signature={_SECRET}",
    f"https://storage.googleapis.com/b/c?X-Goog-Signature={_SECRET}",
    f"https://account.blob.core.windows.net/c?sv=1&sig={_SECRET}",
    f"https://host/c?sig%3D{_SECRET}",
    f"s3://bucket/c?versionId={_SECRET}",
    f"gs://bucket/c#{_SECRET}",
    f"gs://bucket/c;x={_SECRET}",
    f"s3:///AKIAX:{_SECRET}@bucket/c",
    f"gs:////user:{_SECRET}@bucket/c",
    f"s3://./user:{_SECRET}@bucket/c",
    f"https\uff1a//user:{_SECRET}@host/c",
    f"https\uff1a\uff0f\uff0fuser:{_SECRET}@host/c",
    f"https//user:{_SECRET}@host/c",
    f"https;//user:{_SECRET}@host/c",
    f"https :// user:{_SECRET}@host/c",
    f"hf://user:{_SECRET}",
    f"api_org_{_SECRET}",
    f"glpat-{_SECRET}",
    f"sk-proj-{_SECRET}AbCdEfGh",
    f"xoxb-123456789012-{_SECRET}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{_SECRET}",
    f"AWS_SECRET_ACCESS_KEY={_SECRET}",
    f"aws_secret_access_key = {_SECRET}",
    f"server=db;password={_SECRET}",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={_SECRET}==",
    f"SharedAccessSignature=sv=2022&sig={_SECRET}",
    f"Authorization: Bearer {_SECRET}",
    f"authorization: basic {_SECRET}",
    f"bearer {_SECRET}",
    f"PASSWORD: {_SECRET}",
    f"password:{_SECRET}",
    f"token: {_SECRET}",
    f"{{'secret': '{_SECRET}'}}",
    f"X-Api-Key: {_SECRET}",
)
_ARGUMENTS = (
    ("status", "FORM"),
    ("status", "out", "FORM"),
    ("verify", "FORM", "--json"),
    ("gc", "FORM", "--yes"),
    ("aggregate", "FORM", "--aggregation", "min"),
    ("aggregate", "out", "--aggregation", "FORM"),
    ("eval", "FORM", "--qrels", "q"),
    ("eval", "r", "--qrels", "FORM"),
    ("eval", "r", "--qrels=FORM"),
    ("eval", "r", "--qrels", "q", "--against", "FORM"),
    ("eval", "r", "--qrels", "q", "--measures", "FORM"),
    ("run", "FORM"),
    ("run", "CONFIG", "--output", "FORM"),
    ("run", "CONFIG", "--set", "corpus.path=FORM"),
    ("run", "CONFIG", "--set=qrels=FORM"),
    ("run", "CONFIG", "--set", "mono={checkpoint: FORM, k: 5}"),
    ("run", "CONFIG", "--set", "mono={checkpoint: FORM"),
    ("run", "CONFIG", "--set", "FORM"),
    ("run", "CONFIG", "--set", "FORM=1"),
    ("run", "CONFIG", "--stage", "FORM"),
    ("run", "CONFIG", "--runner", "FORM"),
    ("run", "CONFIG", "--FORM"),
    ("run", "CONFIG", "--", "--staging_location=FORM"),
    ("plan", "FORM"),
    ("plan", "CONFIG", "--set", "output=FORM"),
    ("index", "CONFIG", "--set", "index.path=FORM"),
    ("train", "mono", "FORM"),
    ("train", "FORM", "CONFIG"),
    ("train", "mono", "CONFIG", "--output", "FORM"),
    ("train", "mono", "CONFIG", "--set", "start=FORM"),
    ("convert", "mono", "FORM", "--output", "m"),
    ("convert", "mono", "ckpt", "--output", "FORM"),
    ("convert", "mono", "ckpt", "--config", "FORM", "--output", "m"),
    ("demo", "--output", "FORM"),
    ("doctor", "FORM"),
    ("lint", "FORM"),
    ("lint", "a.run", "--first-stage", "FORM"),
    ("FORM",),
)
_DOCUMENTS = (
    "corpus: {path: QUOTED, format: jsonl}",
    "corpus: {path: c, format: QUOTED}",
    "corpus: QUOTED",
    "topics: {path: QUOTED, format: tsv}",
    "qrels: QUOTED",
    "measures: [AP, QUOTED]",
    "mono: {checkpoint: QUOTED, k: QUOTED}",
    "output: QUOTED",
    "run_tag: QUOTED",
    "start: QUOTED",
    "QUOTED: 1",
    "mono: {QUOTED: 1}",
    "QUOTED: 1\nQUOTED: 2",
    "? [QUOTED]\n: 1",
    "qrels: !!int QUOTED",
    "qrels: !!python/name:FORM x",
    "qrels: !<FORM> x",
    "qrels: *FORM",
    "qrels: [FORM",
    "qrels: {FORM",
    'qrels: "FORM',
    "qrels: a: FORM",
    "qrels: @FORM",
    "\t- FORM",
    "%TAG ! FORM\n---\na: 1",
)


@pytest.fixture
def run_main(monkeypatch, capsys):
    """The command line less the end of its process: the exit code, and all that it wrote."""

    # Typer would build it again for every call.
    monkeypatch.setattr(cli, "app", get_command(cli.app))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["beamrank", *map(str, arguments)])
        code = main._run()
        return code, "".join(capsys.readouterr())

    return run


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(
        "corpus: {path: c, format: jsonl}\ntopics: {path: t, format: tsv}\ncandidates: {run: r}\noutput: out\n"
    )
    return path


@pytest.mark.parametrize("form", _FORMS)
def test_credentials_in_arguments_are_refused(config, run_main, form):
    for arguments in _ARGUMENTS:
        filled = [each.replace("FORM", form).replace("CONFIG", str(config)) for each in arguments]
        code, said = run_main(*filled)
        assert (code, _SECRET in said) == (2, False), (arguments, said)
        assert "can carry a credential" in said


@pytest.mark.parametrize("form", _FORMS)
def test_credentials_in_a_config_are_refused(config, form):
    for document in _DOCUMENTS:
        config.write_text(document.replace("QUOTED", json.dumps(form)).replace("FORM", form) + "\n")
        for load in (load_config, lambda path: load_train_config(path, "mono")):
            with pytest.raises(ConfigError) as refusal:
                load(str(config))
            assert _SECRET not in str(refusal.value), document


@pytest.mark.parametrize("form", _FORMS)
def test_credentials_in_function_arguments_are_refused(config, form, monkeypatch):
    monkeypatch.setenv("BEAMRANK_CACHE", form)
    functions: list[Callable[[], object]] = [
        lambda: load_config(form),
        lambda: load_config(str(config), [f"corpus.path={form}"]),
        lambda: load_config(str(config), [f"{form}=1"]),
        lambda: load_config(str(config), output=form),
        lambda: load_train_config(str(config), "mono", output=form),
        lambda: read_plan(form),
        lambda: verify_stages(form),
        lambda: find_garbage(form, 0.0, 0.0),
        lambda: resolve_checkpoint(form, "mono"),
        cache_root,
    ]
    for function in functions:
        with pytest.raises(ConfigError, match="can carry a credential") as refusal:
            function()
        assert _SECRET not in str(refusal.value)


def test_credentials_in_the_place_of_the_cache_are_refused_by_every_command(config, run_main, monkeypatch):
    monkeypatch.setenv("BEAMRANK_CACHE", _FORMS[0])
    code, said = run_main("plan", config)
    assert (code, _SECRET in said) == (2, False)
    assert said.startswith("error: BEAMRANK_CACHE holds a token, or a URL")


def test_credentials_error_names_the_key(config, run_main):
    form = _FORMS[0]
    config.write_text(config.read_text() + f"duo: {{checkpoint: {form}}}\n")
    for arguments, place in (
        (["run", config], f"error: {config}: duo.checkpoint holds a token, or a URL"),
        (["run", config, "--set", f"mono.checkpoint={form}"], "error: --set mono.checkpoint holds a token"),
        (["run", config, f"--output={form}"], "error: --output holds a token"),
        (["status", form], "error: an argument holds a token"),
    ):
        assert run_main(*arguments)[1].startswith(place)


_HARMLESS = (
    "c.jsonl",
    "/data/what?.jsonl",
    "/data/a?token=b#c;d&e",
    "/data/user:name@host/c",
    "me@example.org:c",
    "/data/a::b",
    "/data/100%.jsonl",
    "/data/hf_models/monobert",
    "../hf_monobertlarge",
    "C:/c.jsonl",
    "embedded:mono",
    "castorini/monobert-large-msmarco@main",
    "org/name@0123456789abcdef0123456789abcdef01234567",
    "s3://bucket/c.jsonl",
    "s3://bucket.with.dots/a/b=c/d.jsonl",
    "s3://bucket/home/me@example.org/c.jsonl",
    "gs://bucket/a:b@c/d.jsonl",
    "gs://bucket/part-[0-9]*.jsonl",
    "https://host:8080/c.jsonl",
    "https://host/a:b/c.jsonl",
    "http://[::1]:9000/c",
    "memory://c",
    "file:///data/me@example.org/c",
    "hdfs://host:8020/year=2024/c",
    "hf://datasets/org/name/c.jsonl",
    "hf://datasets/org/name@main/c.jsonl",
    "hf://datasets/org/name@refs%2Fpr%2F1/c.jsonl",
    "hf://org/name@main",
    "simplecache::s3://bucket/c.jsonl",
    "zip://a b.jsonl::https://host/c.zip",
    "hf://datasets/org/name/a:b.jsonl",
    "/data/https/me@host//c",
    "/data/monobert_token=3/sk-learn/c",
    "/data/token:3/c",
)


@pytest.mark.parametrize("path", _HARMLESS)
def test_credentials_check_accepts_harmless_paths(config, path):
    refuse_credentials([path], "here")
    for key in ("corpus.path", "topics.path", "qrels", "candidates.run", "mono.checkpoint", "output"):
        assert load_config(str(config), [f"{key}={json.dumps(path)}"])


def test_credentials_check_accepts_local_files_like_urls(tmp_path, run_main):
    folder = tmp_path / "me:pw@host" / "a::b?token=c#d;e&f%41"
    folder.mkdir(parents=True)
    (folder / "r?.trec").write_text("q1 Q0 d1 1 1.0 x\n")
    (folder / "q#@.txt").write_text("q1 0 d1 1\n")
    (folder / "c::1.jsonl").write_text('{"id": "d1", "contents": "a"}\n')
    code, said = run_main("eval", folder / "r?.trec", "--qrels", folder / "q#@.txt", "--measures", "AP")
    assert (code, said) == (0, "AP\t1.0\n")
    values = f"corpus: {{path: {json.dumps(str(folder))}, format: jsonl}}\ntopics: {{path: t, format: tsv}}\n"
    (tmp_path / "c.yaml").write_text(f"{values}candidates: {{run: r}}\noutput: o\n")
    (folder / "r?.trec").unlink()
    (folder / "q#@.txt").unlink()
    assert [unit.url for unit in list_units(load_config(str(tmp_path / "c.yaml")).corpus)] == [
        str(folder / "c::1.jsonl")
    ]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"403, url='https://s3.host/b/c?X-Amz-Signature={_SECRET}&x=1'", "403, url='https://s3.host/b/c[hidden]'"),
        (f"cannot open https://user:{_SECRET}@host/c: refused", "cannot open https://[hidden]: refused"),
        (f"simplecache::https://{_SECRET}@host/c.", "simplecache://[hidden]."),
        (f"token {_TOKEN} is wrong", "token [hidden] is wrong"),
        (f"AWS_SECRET_ACCESS_KEY={_SECRET} is wrong", "AWS_SECRET_ACCESS_KEY=[hidden] is wrong"),
        (f"got {{'password': '{_SECRET}'}}", "got {'password': [hidden]'}"),
        (f"token: {_SECRET} is wrong", "token: [hidden] is wrong"),
        ("cannot read s3://bucket/c; see https://host/docs.", "cannot read s3://bucket/c; see https://host/docs."),
    ],
)
def test_credentials_in_messages_of_libraries_are_hidden(message, shown, capsys):
    """A store may redirect to a signed URL, and its library repeats that one."""
    assert hide_credentials(message) == shown
    ConsoleProgress().note(message)
    assert capsys.readouterr().err == f"{shown}\n"


def test_credentials_in_an_endpoint_do_not_reach_workers(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://host:9000/?key={_SECRET}")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://[::1]:9000")
    assert StoreSettings.here().variables.keys() & {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} == {
        "AWS_ENDPOINT_URL_S3"
    }


@pytest.mark.parametrize("text", ["a" * 200_000, "%25" * 60_000, "http://" * 30_000, f"hf://a/b@{'/x' * 60_000}:"])
def test_credentials_check_of_long_texts_is_fast(text):
    """Patterns that try every end of a text at every start would take minutes."""
    carries_credentials(text)
    hide_credentials(text)

"""A text that can carry a credential is refused before anything is opened, and never repeated."""

import json
import sys
from collections.abc import Callable

import pytest
from typer.main import get_command

from beamrank.commit.check import find_garbage, verify_stages
from beamrank.commit.plan import read_plan
from beamrank.config.load import load_config
from beamrank.errors import ConfigError
from beamrank.formats.corpora import list_units
from beamrank.storage.disk_cache import cache_root
from beamrank.storage.stores import StoreSettings
from beamrank.storage.urls import carries_credentials, hide_credentials, refuse_credentials
from models.checkpoints.checkpoint import resolve_checkpoint
from models.training.config import load_train_config
from pipelines import cli, main
from pipelines.console.progress import ConsoleProgress
from tests.support.refusals import refuses

_SECRET = "hunter2Never0Seen"
_TOKEN = f"hf_{_SECRET}AbCdEfGh"
_AT_HOST = """
https://user:HUNTER@host/c https://:HUNTER@host/c https://HUNTER@host/c https://HUNTER:x-oauth-basic@host/c
https://user:a/HUNTER@host/c https://user:12/HUNTER@host/c https://user:HUNTER@with@host/c https://user:HUNTER?x@host/c
https://user::HUNTER@host/c https://user%3AHUNTER%40host/c https%253A%252F%252Fuser:HUNTER@host/c
https://user:HUNTER\uff20host/c https\uff1a\uff0f\uff0fuser:HUNTER@host/c https://user:HUNTER\\@host/c
HTTPS://USER:HUNTER@HOST/c https:/user:HUNTER@host/c https:user:HUNTER@host/c https:\\\\user:HUNTER@host/c
https:///user:HUNTER@host/c http://user:HUNTER@[::1]:80/c https://proxy/https://user:HUNTER@host/c
sftp://HUNTER@host/c smb://domain;user:HUNTER@host/c github://HUNTER:HUNTER@main/c
postgresql+psycopg://user:HUNTER@host/db abfss://HUNTER@account.dfs.core.windows.net/c s3://AKIAX:sec/HUNTER@bucket/c
s3a://AKIAX:HUNTER@bucket/c s3://HUNTER@bucket/c s3:///AKIAX:HUNTER@bucket/c s3://./user:HUNTER@bucket/c
gs://user:HUNTER@bucket/c file://user:HUNTER@host/c memory://user:HUNTER@host/c simplecache::https://user:HUNTER@host/c
zip://a.txt::https://user:HUNTER@host/c.zip tar://a@HUNTER::https://host/c hf://HUNTER@datasets/org/name
hf://user:HUNTER@datasets/org/name/c hf://user:HUNTER
"""
_AFTER_PATH = """
https//user:HUNTER@host/c https;//user:HUNTER@host/c s3//key:HUNTER@bucket/p
https://host/c?secret=HUNTER https://host/c?HUNTER https://host/c%253Ftoken=HUNTER https://host/c;token=HUNTER
https://host/c&token=HUNTER https://host/c/token=HUNTER https://host/c#HUNTER https://host?token=HUNTER
https://host/c?sig%3DHUNTER s3://bucket/c?versionId=HUNTER gs://bucket/c;x=HUNTER simplecache::s3://bucket/c?secret=HUNTER
hf://datasets/org/name/c?token=HUNTER
"""
_TOKENS = """
hf_HUNTERAbCdEfGh org/name@hf_HUNTERAbCdEfGh /data/hf_HUNTERAbCdEfGh/c https://host/hf_HUNTERAbCdEfGh/c api_org_HUNTER
glpat-HUNTER sk-proj-HUNTERAbCdEfGh xoxb-123456789012-HUNTER eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.HUNTER
AWS_SECRET_ACCESS_KEY=HUNTER server=db;password=HUNTER AccountName=a;AccountKey=HUNTER==
SharedAccessSignature=sig=HUNTER password:HUNTER
"""
_FORMS = tuple(
    each.replace("HUNTER", _SECRET)
    for each in (
        *_AT_HOST.split(),
        *_AFTER_PATH.split(),
        *_TOKENS.split(),
        *(
            "aws_secret_access_key = HUNTER",
            "Authorization: Bearer HUNTER",
            "authorization: basic HUNTER",
        ),
        *(
            "bearer HUNTER",
            "PASSWORD: HUNTER",
            "token: HUNTER",
            "{'secret': 'HUNTER'}",
            "X-Api-Key: HUNTER",
        ),
    )
)
_ARGUMENTS = [
    each.split()
    for each in """
status FORM|status out FORM|verify FORM --json|gc FORM --yes|aggregate out --aggregation FORM|eval FORM --qrels q
eval r --qrels=FORM|eval r --qrels q --measures FORM|run FORM|run CONFIG --output FORM|run CONFIG --set corpus.path=FORM
run CONFIG --set=qrels=FORM|run CONFIG --set FORM|run CONFIG --set FORM=1|run CONFIG --stage FORM|run CONFIG --FORM
run CONFIG -- --staging_location=FORM|plan CONFIG --set output=FORM|train mono FORM|train FORM CONFIG
train mono CONFIG --set start=FORM|convert mono FORM --output m|demo --output FORM|lint a.run --first-stage FORM|FORM
""".replace("\n", "|")
    .strip("|")
    .split("|")
]
_ARGUMENTS += [
    ["run", "CONFIG", "--set", f"mono={{checkpoint: FORM{end}"] for end in ("", ", k: 5}")
]
_DOCUMENTS = (
    *(
        "corpus: {path: QUOTED, format: jsonl}",
        "corpus: {path: c, format: QUOTED}",
        "qrels: QUOTED",
        "start: QUOTED",
    ),
    *(
        "measures: [AP, QUOTED]",
        "mono: {checkpoint: QUOTED, k: QUOTED}",
        "output: QUOTED",
        "run_tag: QUOTED",
    ),
    *(
        "QUOTED: 1",
        "mono: {QUOTED: 1}",
        "QUOTED: 1\nQUOTED: 2",
        "? [QUOTED]\n: 1",
        "qrels: !!int QUOTED",
    ),
    *(
        "qrels: !!python/name:FORM x",
        "qrels: !<FORM> x",
        "qrels: *FORM",
        "qrels: [FORM",
        "qrels: {FORM",
    ),
    *('qrels: "FORM', "qrels: a: FORM", "qrels: @FORM", "\t- FORM", "%TAG ! FORM\n---\na: 1"),
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
        "corpus: {path: c, format: jsonl}\ntopics: {path: t, format: tsv}\ncandidates: {run: "
        "r}\noutput: out\n"
    )
    return path


# One of each kind: all forms are looked for by one function.
_SOME = (*_FORMS[:2], _FORMS[9], *_FORMS[-12:])


@pytest.mark.parametrize("form", _FORMS)
def test_credentials_are_found_and_never_repeated(form):
    with refuses(ConfigError, "credential") as refusal:
        refuse_credentials(form, "here")
    assert _SECRET not in str(refusal.value)


@pytest.mark.parametrize("form", _SOME)
def test_credentials_in_arguments_are_refused(config, run_main, form):
    for arguments in _ARGUMENTS:
        filled = [each.replace("FORM", form).replace("CONFIG", str(config)) for each in arguments]
        code, said = run_main(*filled)
        assert (code, _SECRET in said) == (2, False), (arguments, said)
        assert "credential" in said


@pytest.mark.parametrize("form", _FORMS)
def test_credentials_in_a_config_are_refused(config, form):
    for document in _DOCUMENTS:
        config.write_text(document.replace("QUOTED", json.dumps(form)).replace("FORM", form) + "\n")
        for load in (load_config, lambda path: load_train_config(path, "mono")):
            with pytest.raises(ConfigError) as refusal:
                load(str(config))
            assert _SECRET not in str(refusal.value), document


@pytest.mark.parametrize("form", _SOME)
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
        with refuses(ConfigError, "credential") as refusal:
            function()
        assert _SECRET not in str(refusal.value)


def test_credentials_in_the_place_of_the_cache_are_refused_by_every_command(
    config, run_main, monkeypatch
):
    monkeypatch.setenv("BEAMRANK_CACHE", _FORMS[0])
    code, said = run_main("plan", config)
    assert (code, _SECRET in said) == (2, False)
    assert said.startswith("error: BEAMRANK_CACHE holds a token, or a URL")


def test_credentials_error_names_the_key(config, run_main):
    form = _FORMS[0]
    config.write_text(config.read_text() + f"duo: {{checkpoint: {form}}}\n")
    for arguments, place in (
        (["run", config], f"error: {config}: duo.checkpoint holds a token, or a URL"),
        (
            ["run", config, "--set", f"mono.checkpoint={form}"],
            "error: --set mono.checkpoint holds a token",
        ),
        (["run", config, f"--output={form}"], "error: --output holds a token"),
        (["status", form], "error: an argument holds a token"),
    ):
        assert run_main(*arguments)[1].startswith(place)


_PATHS = """
c.jsonl /data/what?.jsonl /data/a?token=b#c;d&e /data/user:name@host/c me@example.org:c /data/a::b /data/100%.jsonl
/data/hf_models/monobert ../hf_monobertlarge C:/c.jsonl embedded:mono castorini/monobert-large-msmarco@main
org/name@0123456789abcdef0123456789abcdef01234567 s3://bucket.with.dots/a/b=c/d.jsonl gs://bucket/a:b@c/d.jsonl
s3://bucket/home/me@example.org/c.jsonl gs://bucket/part-[0-9]*.jsonl https://host:8080/c.jsonl https://host/a:b/c.jsonl
http://[::1]:9000/c memory://c file:///data/me@example.org/c hdfs://host:8020/year=2024/c hf://datasets/org/name/c.jsonl
hf://datasets/org/name@main/c.jsonl hf://datasets/org/name@refs%2Fpr%2F1/c.jsonl hf://org/name@main
simplecache::s3://bucket/c.jsonl hf://datasets/org/name/a:b.jsonl /data/https/me@host//c
/data/monobert_token=3/sk-learn/c /data/token:3/c
"""
_HARMLESS = ["zip://a b.jsonl::https://host/c.zip", *_PATHS.split()]


@pytest.mark.parametrize("path", _HARMLESS)
def test_credentials_check_accepts_harmless_paths(config, path):
    refuse_credentials([path], "here")
    for key in (
        "corpus.path",
        "topics.path",
        "qrels",
        "candidates.run",
        "mono.checkpoint",
        "output",
    ):
        assert load_config(str(config), [f"{key}={json.dumps(path)}"])


def test_credentials_check_accepts_local_files_like_urls(tmp_path, run_main):
    folder = tmp_path / "me:pw@host" / "a::b?token=c#d;e&f%41"
    folder.mkdir(parents=True)
    (folder / "r?.trec").write_text("q1 Q0 d1 1 1.0 x\n")
    (folder / "q#@.txt").write_text("q1 0 d1 1\n")
    (folder / "c::1.jsonl").write_text('{"id": "d1", "contents": "a"}\n')
    code, said = run_main(
        "eval", folder / "r?.trec", "--qrels", folder / "q#@.txt", "--measures", "AP"
    )
    assert (code, said) == (0, "AP\t1.0\n")
    values = (
        f"corpus: {{path: {json.dumps(str(folder))}, format: jsonl}}\ntopics: {{path: t, "
        f"format: tsv}}\n"
    )
    (tmp_path / "c.yaml").write_text(f"{values}candidates: {{run: r}}\noutput: o\n")
    (folder / "r?.trec").unlink()
    (folder / "q#@.txt").unlink()
    assert [unit.url for unit in list_units(load_config(str(tmp_path / "c.yaml")).corpus)] == [
        str(folder / "c::1.jsonl")
    ]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            f"403, url='https://s3.host/b/c?X-Amz-Signature={_SECRET}&x=1'",
            "403, url='https://s3.host/b/c[hidden]'",
        ),
        (
            f"cannot open https://user:{_SECRET}@host/c: refused",
            "cannot open https://[hidden]: refused",
        ),
        (f"simplecache::https://{_SECRET}@host/c.", "simplecache://[hidden]."),
        (f"token {_TOKEN} is wrong", "token [hidden] is wrong"),
        (f"AWS_SECRET_ACCESS_KEY={_SECRET} is wrong", "AWS_SECRET_ACCESS_KEY=[hidden] is wrong"),
        (f"got {{'password': '{_SECRET}'}}", "got {'password': [hidden]'}"),
        (f"token: {_SECRET} is wrong", "token: [hidden] is wrong"),
        (
            "cannot read s3://bucket/c; see https://host/docs.",
            "cannot read s3://bucket/c; see https://host/docs.",
        ),
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


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "%25" * 60_000, "http://" * 30_000, f"hf://a/b@{'/x' * 60_000}:"]
)
def test_credentials_check_of_long_texts_is_fast(text):
    """Patterns that try every end of a text at every start would take minutes."""
    carries_credentials(text)
    hide_credentials(text)

"""Workers find the launcher's stores without its environment, and receive no secret."""

import os
import subprocess
import sys
from typing import Any, cast

import fsspec.config
import pyarrow as pa
import pytest
from apache_beam.internal import pickler

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import ShardTask, cut_rows
from beamrank.storage.stores import StoreSettings
from models.stages.compute import Computed, ShardInputs
from tests import ROOT
from tests.support.processes import PATIENCE_SECONDS
from tests.support.tiers import slow_but
from transforms.shards import RunShardFn, TaskFile

_DIGEST = "0" * 64
_WORKER = """
import sys
from apache_beam.internal import pickler
fn = pickler.loads(sys.stdin.buffer.read())
fn.setup()
print(list(fn.process(7)))
"""


def task(url: str) -> ShardTask:
    return ShardTask(StageFolder(url), 7, _DIGEST)


class Stage:
    """Writes a row."""

    inputs = ()
    shards_at_a_time = 1
    asks = False

    def compute(self, inputs: ShardInputs) -> Computed:
        return Computed(pa.table({"row": [1]}), {})


@pytest.mark.parametrize("store", slow_but(1, ["s3", "gcs"]), indirect=True)
def test_worker_finds_the_store_with_only_its_own_credentials(store):
    folder = f"{store.url}/workers"
    plan = Plan("test", store.url, cut_rows([], 1), (), {})
    file = TaskFile.write(plan, folder, "tasks-", [task(folder)])
    own = {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "NO_GCE_CHECK",
        "PATH",
        "PYTHONPATH",
        "HOME",
    }
    environment = {name: value for name, value in os.environ.items() if name in own}
    done = subprocess.run(
        [sys.executable, "-c", _WORKER],
        input=pickler.dumps(RunShardFn(cast(Any, Stage()), file)),
        capture_output=True,
        env=environment,
        cwd=ROOT,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.split() == [b"[7]"]
    receipt = task(folder).receipt()
    assert receipt is not None
    assert receipt.rows == 1


def test_store_settings_hold_no_secret(monkeypatch):
    secrets = {
        "AWS_ACCESS_KEY_ID": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "secret",
        "AWS_ENDPOINT_URL_S3": "http://someone:secret@host",
        "GOOGLE_APPLICATION_CREDENTIALS": "/secret.json",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://host")
    options = {
        "s3": {
            "key": "secret",
            "secret": "secret",
            "anon": False,
            "client_kwargs": {"aws_session_token": "secret", "region_name": "eu"},
            "endpoint_url": "http://someone:secret@host",
        },
        "gs": {"token": {"refresh_token": "secret"}, "project": "p"},
        "gcs": {"token": "anon"},
        "abfs": {"account_key": "secret"},
    }
    monkeypatch.setattr(fsspec.config, "conf", options)
    settings = StoreSettings.here()
    assert b"secret" not in pickler.dumps(settings)
    assert "secret" not in repr(settings)
    assert settings.variables["AWS_ENDPOINT_URL"] == "http://host"
    assert settings.options == {
        "s3": {"anon": False, "client_kwargs": {"region_name": "eu"}},
        "gs": {"project": "p"},
        "gcs": {"token": "anon"},
    }


def test_store_settings_of_the_worker_take_precedence(monkeypatch):
    monkeypatch.setattr(fsspec.config, "conf", {"s3": {"endpoint_url": "http://mine"}})
    monkeypatch.setenv("AWS_REGION", "mine")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    variables = {"AWS_REGION": "theirs", "STORAGE_EMULATOR_HOST": "http://theirs"}
    StoreSettings(variables, {"s3": {"endpoint_url": "http://theirs", "anon": True}}).apply()
    assert fsspec.config.conf["s3"] == {"endpoint_url": "http://mine", "anon": True}
    assert (os.environ["AWS_REGION"], os.environ["STORAGE_EMULATOR_HOST"]) == (
        "mine",
        "http://theirs",
    )
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")

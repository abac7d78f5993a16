import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import load_file

from beamrank.errors import PreflightError
from models.checkpoints.check import resolve_checkpoint
from models.checkpoints.disk_cache import cache_folder
from models.checkpoints.files import TOKENIZER_FILES
from models.checkpoints.sources import locate
from tests.support.checkpoints import save_tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A checkpoint in an object store that keeps no folders."""
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    save_tiny(tmp_path / "saved")
    (tmp_path / "saved" / "training_args.bin").write_bytes(b"not wanted")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "saved"), "/bucket/model", recursive=True)
    yield "memory://bucket/model"
    memory.rm("/bucket", recursive=True)


def test_url_is_copied_once(store, tmp_path):
    checkpoint = resolve_checkpoint(store, "mono")
    assert checkpoint.reference == store
    assert checkpoint.digest == resolve_checkpoint(str(tmp_path / "saved"), "mono").digest
    folder = Path(checkpoint.folder)
    assert folder == cache_folder("checkpoints") / checkpoint.digest
    assert sorted(path.name for path in folder.glob("[!.]*")) == ["config.json", "model.safetensors", "vocab.txt"]
    (folder / "mark").touch()
    assert resolve_checkpoint(store, "mono").folder == checkpoint.folder
    assert (folder / "mark").exists()
    assert not list(cache_folder("checkpoints").glob(".fetching-*"))


def test_tokenizer_files_are_copied_without_weights(store):
    fsspec.filesystem("memory").rm("/bucket/model/model.safetensors")
    folder, reference = locate(store, TOKENIZER_FILES)
    assert reference == store
    assert [path.name for path in Path(folder).glob("[!.]*")] == ["vocab.txt"]
    assert locate(store, TOKENIZER_FILES)[0] == folder


def test_stale_cache_of_a_changed_url_is_replaced(store):
    before = resolve_checkpoint(store, "mono")
    fsspec.filesystem("memory").pipe("/bucket/model/vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nnew\n")
    after = resolve_checkpoint(store, "mono")
    assert after.digest != before.digest
    assert Path(after.folder).name == after.digest
    assert Path(before.folder).is_dir()


def test_url_without_files_is_refused(store):
    with pytest.raises(PreflightError, match="cannot list the checkpoint memory://bucket/nothing"):
        resolve_checkpoint("memory://bucket/nothing", "mono")
    fsspec.filesystem("memory").rm("/bucket/model/model.safetensors")
    with pytest.raises(PreflightError, match="there are no weights in"):
        resolve_checkpoint(store, "mono")
    assert not list(cache_folder("checkpoints").glob(".fetching-*"))


def test_missing_folder_is_refused():
    with pytest.raises(PreflightError, match="there is no checkpoint folder /nowhere/at/all, and"):
        resolve_checkpoint("/nowhere/at/all", "mono")


def test_missing_embedded_checkpoint_is_refused():
    with pytest.raises(PreflightError, match="this installation has no checkpoint embedded:trio"):
        resolve_checkpoint("embedded:trio", "mono")


def _offline(hub: Path, reference: str) -> str:
    """Resolves a reference in a process that has a Hugging Face cache and no network."""
    program = (
        "import sys; from models.checkpoints.check import resolve_checkpoint\n"
        "try: found = resolve_checkpoint(sys.argv[1], 'mono'); "
        "print(found.reference, found.architecture.num_labels, found.weights)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub)}
    command = [sys.executable, "-c", program, reference]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def test_hugging_face_id_is_resolved_to_its_commit(tmp_path):
    repository = tmp_path / "models--someone--ranker"
    save_tiny(repository / "snapshots" / COMMIT)
    for revision in ("main", "v1.0"):
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(COMMIT)
    for reference in ("someone/ranker", "someone/ranker@v1.0"):
        assert _offline(tmp_path, reference) == f"someone/ranker@{COMMIT} 2 model.safetensors"
    snapshot = repository / "snapshots" / COMMIT
    torch.save(load_file(snapshot / "model.safetensors"), snapshot / "pytorch_model.bin")
    (snapshot / "model.safetensors").unlink()
    assert _offline(tmp_path, "someone/ranker") == f"someone/ranker@{COMMIT} 2 pytorch_model.bin"


def test_hugging_face_id_without_network(tmp_path):
    message = _offline(tmp_path, "someone/ranker@v1.0")
    assert message.startswith(
        "PreflightError cannot get the checkpoint someone/ranker@v1.0: no such folder exists here"
    )
    assert "`hf download someone/ranker --revision v1.0 --local-dir DIR`) and give the folder" in message

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import fsspec
import pytest
import torch
from huggingface_hub.utils._paths import filter_repo_objects
from safetensors.torch import load_file, save_file

from beamrank.errors import PreflightError
from beamrank.storage.disk_cache import cache_folder
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from models.checkpoints.files import CHECKPOINT_FILES
from models.checkpoints.sources import locate
from models.tokenizers.files import TOKENIZER_FILES
from tests.support.checkpoints import save_tiny
from tests.support.refusals import refuses
from tests.support.services import hub as hubs

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
    assert folder.parent == cache_folder("checkpoints")
    assert sorted(path.name for path in folder.glob("[!.]*")) == [
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]
    (folder / "mark").touch()
    assert resolve_checkpoint(store, "mono").folder == checkpoint.folder
    assert (folder / "mark").exists()
    assert not list(cache_folder("checkpoints").glob(".fetching-*"))


def _save_modular(folder: Path) -> None:
    """A cross-encoder of sentence-transformers whose head is modules in folders of their own."""
    save_tiny(folder)
    kinds = ("Transformer", "Pooling", "Dense")
    paths = ("", "1_Pooling", "2_Dense")
    modules = [
        {"type": f"sentence_transformers.{kind}", "path": path}
        for kind, path in zip(kinds, paths, strict=True)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path in paths[1:]:
        (folder / path).mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode": "cls"}')
    dense = {"in_features": 32, "out_features": 1, "module_output_name": "scores"}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    (folder / "2_Dense/config.json").write_text(json.dumps(dense))
    weights = {"linear.weight": torch.ones(1, 32), "linear.bias": torch.zeros(1)}
    save_file(weights, folder / "2_Dense/model.safetensors")


def test_modules_are_copied_from_a_url(store, tmp_path):
    _save_modular(tmp_path / "modular")
    fsspec.filesystem("memory").put(str(tmp_path / "modular"), "/bucket/modular", recursive=True)
    checkpoint = resolve_checkpoint("memory://bucket/modular", "mono")
    assert checkpoint.digest == resolve_checkpoint(str(tmp_path / "modular"), "mono").digest
    assert (Path(checkpoint.folder) / "2_Dense/model.safetensors").is_file()
    assert load_weights(checkpoint)["2_Dense/linear.weight"].sum() == 32
    changed = b'{"pooling_mode": "mean"}'
    fsspec.filesystem("memory").pipe("/bucket/modular/1_Pooling/config.json", changed)
    assert resolve_checkpoint("memory://bucket/modular", "mono").digest != checkpoint.digest


def test_patterns_of_a_hub_cover_the_modules(tmp_path):
    _save_modular(tmp_path)
    (tmp_path / "checkpoint-7").mkdir()
    (tmp_path / "checkpoint-7/model.safetensors").touch()
    paths = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    wanted = set(filter_repo_objects(paths, allow_patterns=list(CHECKPOINT_FILES)))
    assert set(paths) - wanted == {"checkpoint-7/model.safetensors"}


def test_tokenizer_files_are_copied_without_weights(store):
    fsspec.filesystem("memory").rm("/bucket/model/model.safetensors")
    folder, reference = locate(store, TOKENIZER_FILES)
    assert reference == store
    assert [path.name for path in Path(folder).glob("[!.]*")] == ["vocab.txt"]
    assert locate(store, TOKENIZER_FILES)[0] == folder


def test_stale_cache_of_a_changed_url_is_replaced(store):
    before = resolve_checkpoint(store, "mono")
    fsspec.filesystem("memory").pipe(
        "/bucket/model/vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nnew\n"
    )
    after = resolve_checkpoint(store, "mono")
    assert after.digest != before.digest
    assert Path(before.folder).is_dir()


def test_url_without_files_is_refused(store):
    with pytest.raises(PreflightError, match="memory://bucket/nothing"):
        resolve_checkpoint("memory://bucket/nothing", "mono")
    fsspec.filesystem("memory").rm("/bucket/model/model.safetensors")
    with refuses(PreflightError, "no-weights"):
        resolve_checkpoint(store, "mono")
    assert not list(cache_folder("checkpoints").glob(".fetching-*"))


def test_missing_folder_is_refused():
    with pytest.raises(PreflightError, match="/nowhere/at/all"):
        resolve_checkpoint("/nowhere/at/all", "mono")


def test_missing_embedded_checkpoint_is_refused():
    with pytest.raises(PreflightError, match=r"'embedded:trio': .*embedded:mono, embedded:duo"):
        resolve_checkpoint("embedded:trio", "mono")


def _resolved(environment: Mapping[str, str], *references: str) -> list[str]:
    """Resolves references in a process with these variables; a line each."""
    program = (
        "import sys; from models.checkpoints.checkpoint import resolve_checkpoint\n"
        "for reference in sys.argv[1:]:\n"
        "    try: found = resolve_checkpoint(reference, 'mono'); print(found.reference, "
        "*found.weights)\n    except Exception as error: print(type(error).__name__, error)"
    )
    command = [sys.executable, "-c", program, *references]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()


def _save_in_hub(repository: Path, *revisions: str) -> Path:
    snapshot = repository / "snapshots" / COMMIT
    save_tiny(snapshot)
    (repository / "refs").mkdir()
    for revision in revisions:
        (repository / "refs" / revision).write_text(COMMIT)
    return snapshot


def test_hugging_face_id_is_resolved_to_its_commit(tmp_path):
    _save_in_hub(tmp_path / "models--someone--ranker", "main", "v1.0")
    pickled = _save_in_hub(tmp_path / "models--someone--pickled", "main")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    references = (f"someone/{name}" for name in ("ranker", "ranker@v1.0", "pickled", "no@v1.0"))
    *found, missing = _resolved(environment, *references)
    names = (
        "ranker@{} model.safetensors",
        "ranker@{} model.safetensors",
        "pickled@{} pytorch_model.bin",
    )
    assert found == [f"someone/{name.format(COMMIT)}" for name in names]
    assert missing.startswith(
        "PreflightError cannot get the checkpoint someone/no@v1.0: no such folder exists here"
    )
    assert (
        "`hf download someone/no --revision v1.0 --local-dir DIR`) and give the folder" in missing
    )


@pytest.mark.slow
def test_hub_of_one_s_own_asks_for_the_token_and_is_not_asked_offline(tmp_path):
    save_tiny(tmp_path / "saved")
    with hubs.served_hub() as hub:
        hub.add("someone/private", tmp_path / "saved")
        (refused,) = _resolved(hub.environment(tmp_path / "cache", token=None), "someone/private")
        environment = hub.environment(tmp_path / "cache")
        found = _resolved(environment, "someone/private", "someone/private@main")
        assert found == [f"someone/private@{hubs.COMMIT} model.safetensors"] * 2
        assert any(
            path.endswith("/resolve/" + hubs.COMMIT + "/model.safetensors") for path in hub.requests
        )
        (wrong,) = _resolved(environment, "someone/private@v9")
        hub.requests.clear()
        offline = environment | {"HF_HUB_OFFLINE": "1"}
        assert _resolved(offline, "someone/private") == found[:1]
        (unknown,) = _resolved(offline, "someone/else")
        assert hub.requests == []
    assert refused.startswith("PreflightError cannot get the checkpoint someone/private")
    assert "HF_TOKEN" in refused
    assert wrong.startswith("PreflightError cannot get the checkpoint someone/private@v9")
    assert "HF_HUB_OFFLINE" in unknown
    assert not any(hubs.TOKEN in line for line in (refused, wrong, unknown))

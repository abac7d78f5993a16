"""Which checkpoints the stages of encoders take, and what their digests cover."""

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import fsspec
import pytest
from transformers import BertModel

from beamrank.errors import PreflightError
from contrib.encoders import checkpoint
from contrib.encoders.checkpoint import EncoderCheckpoint, libraries
from tests.contrib.encoders.tiny import SAVE, save_backbone, save_routed
from tests.support.checkpoints import LETTERS, save_tiny
from tests.support.processes import beamrank_here
from tests.support.services.hub import COMMIT, served_hub
from tests.support.small_collection import SmallCollection


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """A checkpoint for each stage, `mono` among them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    mono = {"mono": save_tiny(folder / "mono", LETTERS, num_labels=1)}
    return mono | {stage: save(folder / stage) for stage, save in SAVE.items()}


@pytest.fixture
def copied(folders, tmp_path) -> Path:
    """A dense checkpoint that a test changes."""
    return Path(shutil.copytree(folders["dense"], tmp_path / "copied"))


@pytest.mark.parametrize("stage", [*SAVE])
def test_stage_takes_its_own_kind_and_names_the_stage_of_others(folders, stage):
    for kind, folder in folders.items():
        if kind == stage:
            read = EncoderCheckpoint.read(folder, stage)
            assert (read.folder, read.reference) == (folder, folder)
            continue
        named = f"{re.escape(folder)} .*the stage `{kind}`.*`{stage}`"
        with pytest.raises(PreflightError, match=named):
            EncoderCheckpoint.read(folder, stage)


def test_plan_refuses_a_checkpoint_of_another_kind(folders, tmp_path):
    collection = SmallCollection(tmp_path).given_run()
    collection.keys["cascade"] = [{"sparse": folders["dense"]}, {"dense": "embedded:mono"}]
    for overrides, kind in (((), "dense"), (("sparse.checkpoint=" + folders["sparse"],), "mono")):
        sets = [part for each in overrides for part in ("--set", each)]
        done = beamrank_here("plan", collection.path, *sets)
        assert (done.returncode, f"`{kind}`" in done.stderr) == (3, True), done.stderr


def test_checkpoint_must_say_how_texts_become_vectors(tmp_path):
    plain = save_backbone(tmp_path / "plain", BertModel)
    with pytest.raises(PreflightError, match=r"SparseEncoder\('.*plain'\)\.save_pretrained"):
        EncoderCheckpoint.read(plain, "sparse")


@pytest.mark.parametrize("name", ["modules.json", "router_config.json"])
def test_code_of_a_checkpoint_is_refused(copied, name):
    modules = json.loads((copied / "modules.json").read_text())
    route = {"types": {"query_0_Own": "author.Own"}}
    made = [*modules[:1], {**modules[1], "type": "author.Own"}] if "modules" in name else route
    (copied / name).write_text(json.dumps(made))
    with pytest.raises(PreflightError, match=r"'author\.Own'"):
        EncoderCheckpoint.read(str(copied), "dense")


def test_checkpoint_without_weights_is_refused(copied):
    (copied / "model.safetensors").unlink()
    with pytest.raises(PreflightError) as refused:
        EncoderCheckpoint.read(str(copied), "dense")
    assert refused.value.kind == "no-weights"


def test_checkpoint_of_a_hub_is_that_of_its_folder(folders, tmp_path):
    own = {stage: folders[stage] for stage in SAVE}
    routed = save_routed(tmp_path / "routed")
    (tmp_path / "routed/onnx").mkdir()
    (tmp_path / "routed/onnx/model.onnx").write_bytes(b"not wanted")
    names = [*own.items(), ("sparse", routed)]
    program = (
        "import sys; from contrib.encoders.checkpoint import EncoderCheckpoint\n"
        "for stage, name in zip(sys.argv[1::2], sys.argv[2::2]):\n"
        "    found = EncoderCheckpoint.read('someone/' + name, stage)\n"
        "    print(found.reference, found.digest)"
    )
    pairs = [part for stage, folder in names for part in (stage, Path(folder).name)]
    with served_hub() as hub:
        for _, folder in names:
            hub.add(f"someone/{Path(folder).name}", Path(folder))
        done = subprocess.run(
            [sys.executable, "-c", program, *pairs],
            capture_output=True,
            text=True,
            check=True,
            env=hub.environment(tmp_path / "cache"),
        )
        assert not any("onnx" in path for path in hub.requests)
    assert done.stdout.splitlines() == [
        f"someone/{Path(folder).name}@{COMMIT} {EncoderCheckpoint.read(folder, stage).digest}"
        for stage, folder in names
    ]


def test_checkpoint_at_a_store_is_that_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    late, routed = SAVE["late"](tmp_path / "late"), save_routed(tmp_path / "routed")
    for folder in (late, routed):
        memory.put(folder, f"/bucket/{Path(folder).name}", recursive=True)
    read = EncoderCheckpoint.read("memory://bucket/late", "late")
    assert read.reference == "memory://bucket/late"
    assert read.digest == EncoderCheckpoint.read(late, "late").digest
    assert EncoderCheckpoint.read(routed, "sparse").files
    with pytest.raises(PreflightError, match="lacks query_0_"):
        EncoderCheckpoint.read("memory://bucket/routed", "sparse")
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config_sentence_transformers.json", True),
        ("1_Pooling/config.json", True),
        ("sentence_bert_config.json", True),
        ("sentence_roberta_config.json", True),
        ("tokenizer.json", True),
        ("README.md", False),
        ("onnx/model.onnx", False),
    ],
)
def test_digest_covers_what_decides_vectors(folders, copied, name, changes):
    before = EncoderCheckpoint.read(folders["dense"], "dense").digest
    assert EncoderCheckpoint.read(str(copied), "dense").digest == before
    file = copied / name
    file.parent.mkdir(exist_ok=True)
    file.write_text((file.read_text() if file.exists() else "") + "\n")
    assert (EncoderCheckpoint.read(str(copied), "dense").digest != before) is changes


@pytest.mark.parametrize("installed", [None, "5.9.9"])
def test_missing_library_is_told_with_how_to_install_it(monkeypatch, installed):
    def version(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    assert int(libraries()["sentence-transformers"].partition(".")[0]) >= 6
    monkeypatch.setattr(checkpoint, "version", version)
    with pytest.raises(PreflightError, match=r"pip install '\.\[encoders\]'"):
        libraries()

"""Checkpoints in zip and tar.gz: what is unpacked, and archives that are damaged or malicious."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from contrib.tensorflow2019.source import find_source, unpacked
from contrib.tensorflow2019.tensor_bundle import TensorBundle
from tests.support.corpora import save_tar
from tests.support.models.tensorflow1 import copy_pretrained

_NAMES = (
    "bert_config.json",
    "bert_model.ckpt.data-00000-of-00001",
    "bert_model.ckpt.index",
    "vocab.txt",
)


def _archive(path: Path, files: dict[str, bytes]) -> str:
    """An archive of files by their names in it."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return str(path)
    return str(save_tar(path, files))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    copy_pretrained(tmp_path / "original")
    return {name: (tmp_path / "original" / name).read_bytes() for name in _NAMES}


@pytest.mark.parametrize("name", ["bert.zip", "bert.tar.gz", "bert.tgz"])
def test_archive_is_read_as_it_was_released(name, files, tmp_path):
    below = {f"uncased_L-2/{name}": content for name, content in files.items()}
    extra = {"uncased_L-2/README.md": b"hello", "__MACOSX/uncased_L-2/._vocab.txt": b"junk"}
    path = _archive(tmp_path / name, below | extra)
    with unpacked(path) as folder:
        assert sorted(file.name for file in Path(folder).iterdir()) == list(_NAMES)
        assert {file.name: file.read_bytes() for file in Path(folder).iterdir()} == files
        assert len(TensorBundle(find_source(folder).prefix).entries) == 46
    assert not Path(folder).exists()


def test_what_is_no_archive_stays(tmp_path):
    for name in (str(tmp_path), "output/model.ckpt-7", "gs://bucket/bert.zip"):
        with unpacked(name) as place:
            assert place == name


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_archive_writes_into_its_own_folder_alone(ending, files, tmp_path):
    names = [
        f"../../{_NAMES[0]}",
        f"{tmp_path}/{_NAMES[1]}",
        f"a/../../{_NAMES[2]}",
        f"..\\{_NAMES[3]}",
    ]
    path = _archive(tmp_path / f"evil.{ending}", dict(zip(names, files.values(), strict=True)))
    with unpacked(path) as folder:
        assert set(_NAMES[:3]) <= {file.name for file in Path(folder).iterdir()}
    assert not [
        name
        for name in _NAMES
        if (tmp_path / name).exists() or (Path(folder).parent / name).exists()
    ]


def test_links_of_an_archive_are_not_followed(files, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = tmp_path / "links.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, kind in (("vocab.txt", tarfile.SYMTYPE), ("bert_config.json", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(secret)
            tar.addfile(member)
        member = tarfile.TarInfo("bert_model.ckpt.index")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"abcd"))
    with unpacked(str(path)) as folder:
        assert [file.name for file in Path(folder).iterdir()] == ["bert_model.ckpt.index"]


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["model.ckpt.index", "README.md"])
def test_bomb_is_refused(ending, name, tmp_path):
    path = _archive(tmp_path / f"bomb.{ending}", {name: bytes(80 << 20)})
    reason = (
        "none of its files"
        if (ending, name) == ("zip", "README.md")
        else r"holds more than [\d,]+ bytes"
    )
    with pytest.raises(PreflightError, match=reason), unpacked(path):
        pass


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_damaged_archive_is_an_error(ending, files, tmp_path):
    path = Path(_archive(tmp_path / f"bert.{ending}", files))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (b"", b"text", whole[:-100], whole[: len(whole) // 2], bytes(damaged)):
        path.write_bytes(content)
        with (
            pytest.raises(PreflightError, match=rf"{path.name}"),
            unpacked(str(path)),
        ):
            pass
    path.unlink()
    with pytest.raises(PreflightError, match="No such file"), unpacked(str(path)):
        pass


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_archive_of_several_checkpoints_or_none_is_refused(ending, files, tmp_path):
    two = {
        f"{folder}/{name}": content
        for folder in ("base", "large")
        for name, content in files.items()
    }
    with (
        pytest.raises(PreflightError, match=r"bert_config\.json"),
        unpacked(_archive(tmp_path / f"two.{ending}", two)),
    ):
        pass
    with (
        pytest.raises(PreflightError, match="TensorFlow checkpoint"),
        unpacked(_archive(tmp_path / f"none.{ending}", {"vocab.txt": b"a"})),
    ):
        pass


def test_encrypted_archive_is_an_error(files, tmp_path):
    path = Path(_archive(tmp_path / "locked.zip", files))
    content = bytearray(path.read_bytes())
    for start in (b"PK\x03\x04", b"PK\x01\x02"):
        place = content.index(start) + (6 if start[2] == 3 else 8)
        content[place] |= 1
    path.write_bytes(bytes(content))
    with pytest.raises(PreflightError, match="encrypted"), unpacked(str(path)):
        pass

"""Finds an original checkpoint's files: TensorFlow's own, bert_config.json and vocab.txt."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from beamrank.errors import ConfigError, PreflightError
from beamrank.storage import files as storage
from contrib.tensorflow2019.tensor_bundle import INDEX_SUFFIX

SPECIAL_TOKENS = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}

_FILE_OF_CHECKPOINT = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"-(\d+)\.index$")


@dataclass(frozen=True)
class Source:
    """An original checkpoint's files.

    Attributes:
        prefix: the common beginning of the names of the TensorFlow files.
        config: bert_config.json.
        vocabulary: vocab.txt.
    """

    prefix: str
    config: str
    vocabulary: str


def find_source(checkpoint: str, config: str | None = None, vocabulary: str | None = None) -> Source:
    """Finds the files of a checkpoint.

    Args:
        checkpoint: a prefix such as `model.ckpt-100000`, one of its files, or a folder, whose last step is taken.
        config: bert_config.json; by default the one beside the checkpoint.
        vocabulary: vocab.txt; by default the one beside the checkpoint.

    Raises:
        ConfigError: a path is a URL.
        PreflightError: the checkpoint does not exist, or a folder has several and none is the last.
    """
    for path in filter(None, (checkpoint, config, vocabulary)):
        if storage.is_remote(path):
            raise ConfigError(f"only files on this machine are converted: copy {path} here first")
    path = storage.absolute(checkpoint)
    prefix = _last_step(Path(path)) if os.path.isdir(path) else _FILE_OF_CHECKPOINT.sub("", path)
    if not os.path.isfile(prefix + INDEX_SUFFIX):
        raise PreflightError(
            f"there is no TensorFlow checkpoint {checkpoint}: {prefix}{INDEX_SUFFIX} does not exist. Give a folder, or "
            "the common beginning of the names of the checkpoint's files, such as output/model.ckpt-100000"
        )
    beside = storage.parent(prefix)
    return Source(
        prefix=prefix,
        config=storage.absolute(config or storage.join(beside, "bert_config.json")),
        vocabulary=storage.absolute(vocabulary or storage.join(beside, "vocab.txt")),
    )


def check_vocabulary(path: str, vocab_size: int) -> tuple[str, ...]:
    """Warnings about vocab.txt.

    Raises:
        PreflightError: it does not exist, or cannot be the checkpoint's.
    """
    try:
        tokens = Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise PreflightError(
            f"cannot read {path}: {error.strerror}. Give the vocab.txt that the checkpoint was trained with: --vocab"
        ) from error
    except UnicodeDecodeError as error:
        raise PreflightError(f"{path} is not UTF-8 text: {error}") from error
    known = {token.strip() for token in tokens}
    missing = [token for token in SPECIAL_TOKENS.values() if token not in known]
    sizes = f"has {len(tokens):,} tokens, and the checkpoint knows {vocab_size:,}"
    if missing or len(tokens) > vocab_size:
        wrong = f"lacks {', '.join(missing)}" if missing else sizes
        raise PreflightError(f"{path} {wrong}: give the vocab.txt that the checkpoint was trained with: --vocab")
    warnings = []
    if len(tokens) < vocab_size:
        warnings.append(f"{os.path.basename(path)} {sizes}: is it the one that it was trained with?")
    if any(token != token.lower() for token in known - {*SPECIAL_TOKENS.values(), "[MASK]"}):
        warnings.append(
            f"{os.path.basename(path)} has tokens with capitals, and texts are lower-cased, as the code of 2019 does: "
            "set do_lower_case to false in tokenizer_config.json if this model was trained on cased text"
        )
    return tuple(warnings)


def _last_step(folder: Path) -> str:
    steps = {path: _step(path) for path in sorted(folder.glob(f"*{INDEX_SUFFIX}"))}
    if not steps:
        raise PreflightError(
            f"there is no TensorFlow checkpoint in {folder}: none of its files ends with {INDEX_SUFFIX}. (The oldest "
            "format, one file without an index, is not read: load it with TensorFlow and save it again)"
        )
    last = max(steps.values())
    newest = [path for path, step in steps.items() if step == last]
    if len(newest) > 1:
        names = ", ".join(path.name for path in newest)
        raise PreflightError(f"{folder} has several checkpoints, and none is the last: {names}. Give one of them")
    return str(newest[0]).removesuffix(INDEX_SUFFIX)


def _step(path: Path) -> int:
    """The step in a checkpoint's name, or -1."""
    step = _STEP.search(path.name)
    return int(step[1]) if step else -1

"""`beamrank convert mono|duo|bert CHECKPOINT`: a TensorFlow 1 checkpoint becomes a Hugging Face
folder.

The folder appears whole or not at all, after it was loaded and, for a re-ranker, its scores were
compared.
"""

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jinja2 import Environment, StrictUndefined

from beamrank.errors import BeamrankError
from beamrank.notes import Progress
from beamrank.ranking.input_layout import TEXT_COUNTS, PackedInputs, lay_out
from beamrank.storage import files as storage
from beamrank.storage.local_files import new_folder
from beamrank.version import __version__
from contrib.tensorflow2019.original_bert import (
    NEXT_SENTENCE,
    PRETRAINED,
    OriginalConfig,
    Weights,
    check_variables,
    read_config,
    read_weights,
    unused,
)
from contrib.tensorflow2019.source import (
    SPECIAL_TOKENS,
    NewFolder,
    Source,
    check_vocabulary,
    empty_place,
    find_source,
    unpacked,
)
from contrib.tensorflow2019.tensor_bundle import TensorBundle
from models.architectures.encoder.shape import EncoderShape
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from models.checkpoints.files import CONFIG, SAFETENSORS
from models.scoring.engine import ScoringEngine
from models.tokenizers.bert import load_bert
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

HELP_PANEL = "Data and models"

_LABELS = {0: "not_relevant", 1: "relevant"}
_RANKER: dict[str, Any] = {
    "architectures": ["BertForSequenceClassification"],
    "id2label": _LABELS,
    "label2id": {label: number for number, label in _LABELS.items()},
}
_PROBE_WORDS = 8
_TOLERANCE = 1e-3


CheckpointPath = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The prefix of its files (output/model.ckpt-100000), their folder for the last step, "
        "a zip or a tar.gz.",
    ),
]
Config = Annotated[
    str | None, typer.Option(help="bert_config.json; by default beside the checkpoint.")
]
Vocabulary = Annotated[
    str | None, typer.Option(help="vocab.txt; by default beside the checkpoint.")
]


def convert_mono(
    checkpoint: CheckpointPath, output: NewFolder, config: Config = None, vocab: Vocabulary = None
) -> None:
    """Convert a TensorFlow 1 checkpoint of dl4marco-bert to a Hugging Face folder. Needs no
    TensorFlow.
    """
    _convert("mono", checkpoint, output, config, vocab)


def convert_duo(
    checkpoint: CheckpointPath, output: NewFolder, config: Config = None, vocab: Vocabulary = None
) -> None:
    """Convert a TensorFlow 1 checkpoint of duobert to a Hugging Face folder. Needs no
    TensorFlow.
    """
    _convert("duo", checkpoint, output, config, vocab)


def convert_bert(
    checkpoint: CheckpointPath,
    output: NewFolder,
    config: Config = None,
    vocab: Vocabulary = None,
    drop_next_sentence: Annotated[
        bool,
        typer.Option(
            "--drop-next-sentence",
            help="Leave out cls/seq_relationship, the head of next sentences.",
        ),
    ] = False,
) -> None:
    """Convert a pre-trained TensorFlow 1 checkpoint of BERT, a start of trainings, to a Hugging
    Face folder.
    """
    _convert("bert", checkpoint, output, config, vocab, drop_next_sentence)


def _convert(
    kind: str,
    checkpoint: str,
    output: str,
    config: str | None,
    vocab: str | None,
    drop_next_sentence: bool = False,
) -> None:
    given = {"--config": config, "--vocab": vocab, "--output": output}
    words = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    options = ["--drop-next-sentence"] * drop_next_sentence
    command = shlex.join(["beamrank", "convert", kind, checkpoint, *words, *options])
    with unpacked(checkpoint) as place:
        source = find_source(place, config, vocab)
        write_line(
            *convert(kind, source, output, command, ConsoleProgress(), not drop_next_sentence)
        )


def convert(
    kind: str,
    source: Source,
    output: str,
    command: str,
    progress: Progress,
    next_sentence: bool = True,
) -> tuple[str, str]:
    """Writes a folder that transformers and beamrank load; it appears whole or not at all.

    Args:
        kind: `mono` or `duo`, or `bert`: a pre-trained one, from which trainings start.
        source: the original's files.
        output: the folder; it must not exist, or be empty.
        command: the command that the model card shows.
        progress: receives notes and warnings.
        next_sentence: whether the head of next sentences is kept, if a pre-trained one has it.

    Returns:
        The folder and its digest.

    Raises:
        ConfigError: `output` is a URL.
        PreflightError: a file is missing or invalid, or `output` is not empty.
        BeamrankError: the folder gives other scores in transformers.
    """
    bundle = TensorBundle(source.prefix)
    if kind not in TEXT_COUNTS:
        heads = {
            name: entry.shape
            for name, entry in bundle.entries.items()
            if name.startswith(f"{NEXT_SENTENCE}/")
        }
        kind = "pretraining" if heads and next_sentence else "masked_lm"
        if heads and not next_sentence:
            progress.note(
                f"{source.prefix}: without "
                f"{', '.join(name for name in heads if name not in unused(heads))}"
            )
            bundle.entries = {
                name: entry for name, entry in bundle.entries.items() if name not in heads
            }
    target = empty_place(output)
    config = read_config(source.config)
    shapes = {name: entry.shape for name, entry in bundle.entries.items()}
    stored_shape, warnings = check_variables(shapes, config, kind, source.prefix)
    warnings += check_vocabulary(source.vocabulary, config.vocab_size)
    progress.note(
        f"{source.prefix}: {len(shapes):,} variables, {len(unused(shapes)):,} of them for training "
        "alone"
    )
    for warning in warnings:
        progress.warn(warning)
    with new_folder(target) as temporary:
        _write(
            temporary,
            *read_weights(bundle.read, stored_shape, kind),
            kind,
            config,
            source.vocabulary,
        )
        (temporary / "README.md").write_text(
            _card(kind, source, bundle, command, warnings), encoding="utf-8"
        )
        (_check_scores if kind in TEXT_COUNTS else _check_start)(str(temporary), kind)
    folder = str(target)
    if kind in TEXT_COUNTS:
        progress.note(f"{folder}: beamrank and transformers load it, and score the same")
        return folder, resolve_checkpoint(folder, kind).digest
    from models.training.initial_model import Start

    progress.note(
        f"{folder}: {PRETRAINED[kind]} of transformers loads it, and trainings can start from it"
    )
    return folder, Start(folder, 1).digest


def _write(
    folder: Path,
    weights: Weights,
    shape: EncoderShape,
    kind: str,
    config: OriginalConfig,
    vocabulary: str,
) -> None:
    from safetensors.numpy import save_file
    from transformers import BertConfig

    BertConfig(
        **config.model_dump()
        | {"type_vocab_size": shape.token_types, "layer_norm_eps": shape.layer_norm_eps},
        **({"architectures": [PRETRAINED[kind]]} if kind in PRETRAINED else _RANKER),
        dtype="float32",
    ).save_pretrained(folder)
    save_file(weights, folder / SAFETENSORS, metadata={"format": "pt"})
    # safetensors makes its files readable for their owner only.
    shutil.copymode(folder / CONFIG, folder / SAFETENSORS)
    shutil.copyfile(vocabulary, folder / "vocab.txt")
    tokenizer = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "tokenize_chinese_chars": True,
        "strip_accents": None,
        "model_max_length": shape.positions,
        **SPECIAL_TOKENS,
        "mask_token": "[MASK]",
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(tokenizer, indent=2) + "\n", encoding="utf-8"
    )


def _check_start(folder: str, kind: str) -> None:
    """Loads the folder as transformers does, and as a training does."""
    import transformers
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    from models.training.initial_model import Start

    disable_progress_bar()  # type: ignore[no-untyped-call]
    set_verbosity_error()  # type: ignore[no-untyped-call]
    model = getattr(transformers, PRETRAINED[kind])
    _, loading = model.from_pretrained(folder, output_loading_info=True)
    if loading["missing_keys"]:
        raise BeamrankError(
            f"the converted checkpoint lacks {', '.join(sorted(loading['missing_keys']))} in "
            "transformers"
        )
    Start(folder, 1).masked_model(0.0, train_word_embeddings=True)


def _check_scores(folder: str, kind: str) -> None:
    """Loads the folder as a run does and as transformers does, and compares the scores of one
    input.
    """
    checkpoint = resolve_checkpoint(folder, kind)
    inputs = _probe(checkpoint, TEXT_COUNTS[kind])
    scored = (
        ScoringEngine(checkpoint, "cpu", "float32", threads=1, token_budget=1024)
        .score(inputs)
        .log_odds[0]
    )
    wanted = _score_with_transformers(folder, inputs)
    if not abs(scored - wanted) <= _TOLERANCE * max(1.0, abs(wanted)):
        raise BeamrankError(
            f"the converted checkpoint gives {scored:.6f} in beamrank and {wanted:.6f} in "
            "transformers for the same input, so it would rank wrongly in one of them, and was "
            "not kept. Please report it with the versions that `beamrank doctor` prints"
        )


def _probe(checkpoint: Checkpoint, segments: int) -> PackedInputs:
    """One input whose words are spread over the vocabulary."""
    model = checkpoint.architecture
    template = model.template(load_bert(checkpoint.folder).special)
    words = min(_PROBE_WORDS, (model.positions - template.special_tokens) // segments)
    return PackedInputs(
        tokens=np.linspace(0, model.vocab_size - 1, words * segments).astype(np.uint32),
        starts=words * np.arange(segments)[None, :],
        kept=np.full((1, segments), words),
        template=template,
    )


def _score_with_transformers(folder: str, inputs: PackedInputs) -> float:
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    batch = lay_out(inputs, np.arange(1), int(inputs.lengths[0]))
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    token_ids, token_types = (
        torch.from_numpy(array).long() for array in (batch.token_ids, batch.token_types)
    )
    with torch.inference_mode():
        logits = model(input_ids=token_ids, token_type_ids=token_types).logits[0]
    return float(logits[1] - logits[0])


def _card(
    kind: str, source: Source, bundle: TensorBundle, command: str, warnings: Sequence[str]
) -> str:
    """The text of README.md."""
    paths = [*bundle.files, source.config, source.vocabulary]
    template = (
        resources.files("contrib.tensorflow2019").joinpath("card.md.j2").read_text(encoding="utf-8")
    )
    # A model card is Markdown: what it holds is not escaped.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701
    return environment.from_string(template).render(
        kind=kind,
        name=os.path.basename(source.prefix),
        step=int(bundle.read("global_step")) if "global_step" in bundle.entries else None,
        version=__version__,
        command=command,
        files=[(storage.name(path), os.path.getsize(path), storage.sha256(path)) for path in paths],
        warnings=warnings,
    )

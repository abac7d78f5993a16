"""The model card, README.md in a model's folder: training data, hyperparameters and measured effectiveness."""

import platform

import torch
import yaml

from beamrank.formats.files import paths_of
from beamrank.formats.notes import counted
from beamrank.storage import files as storage
from beamrank.version import __version__
from models.checkpoints.sources import hub_id
from models.training.config import TrainConfig
from models.training.session import Session
from models.training.states import TrainState

_INPUTS = {
    "mono": "Input: `[CLS] query [SEP] passage [SEP]`, token types 0 and 1.",
    "duo": (
        "Input: `[CLS] query [SEP] doc i [SEP] doc j [SEP]` with token types 0, 1 and 2 (`type_vocab_size` 3), which "
        "tokenizers of\ntransformers do not emit by themselves."
    ),
    "tcp": "Input: `[CLS] passage [SEP]`, with masked words; token type 0.",
}
_PACKED = (
    "Input: `[CLS] A [SEP] B [SEP]` with masked words, token types 0 and 1. A and B hold as many passages as fit, with "
    "`[SEP]` between\nthem."
)
_SCORES = {1: "The score is the logit.", 2: "The score is logit 1 (`relevant`) minus logit 0 (`not_relevant`)."}


def write_card(session: Session, state: TrainState, command: str) -> None:
    """Writes README.md to the output folder."""
    parts = [_head(session), _input(session), _recipe(session, state, command), _data(session)]
    parts.append(_figures(session, state))
    storage.replace(card_path(session.config), "\n".join(parts).encode())


def card_path(config: TrainConfig) -> str:
    """README.md in the output folder."""
    return storage.join(config.output, "README.md")


def _head(session: Session) -> str:
    card = session.config.card
    tag = "fill-mask" if session.kind == "tcp" else "text-ranking"
    head: dict[str, object] = {"pipeline_tag": tag}
    base = None if session.config.random_weights else hub_id(session.start.reference)
    if base is not None:
        head["base_model"] = base
    if card.licence:
        head["license"] = card.licence
    if card.language:
        head["language"] = card.language
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n# {storage.name(session.config.output)}\n"


def _input(session: Session) -> str:
    model = {"mono": "monoBERT", "duo": "duoBERT", "tcp": "BERT, pre-trained on a corpus"}[session.kind]
    millions = sum(each.numel() for each in session.model.parameters()) / 1e6
    layers, width = session.model.config.num_hidden_layers, session.model.config.hidden_size
    size = f"{layers} layers, {width} wide, {millions:.1f} million parameters, {session.config.weights}"
    scores = "It cannot rank before it is fine-tuned." if session.kind == "tcp" else _SCORES[session.labels]
    inputs = _PACKED if session.kind == "tcp" and session.config.pack else _INPUTS[session.kind]
    inputs += _chunks(session.config)
    return f"A {model} ({size}), trained by beamrank {__version__}.\n\n{inputs} {scores}\n"


def _chunks(config: TrainConfig) -> str:
    if config.chunks is None:
        return ""
    return (
        f" A passage is split into {config.chunks.count} even chunks, each of which is such an input, and their "
        f"[CLS]\nvectors are combined by {config.chunks.pooling} pooling below the head: beamrank scores with it, "
        "transformers cannot load it."
    )


def _recipe(session: Session, state: TrainState, command: str) -> str:
    config, optimizer, limits = session.config, session.config.optimizer, session.limits
    objective = " + ".join(name if weight == 1 else f"{weight:g} {name}" for name, weight in config.objective.items())
    query = "" if session.kind == "tcp" else f"query {limits.max_query_length}, "
    rows = {
        "start": _start(session),
        "recipe": config.recipe or "none",
        "objective": objective,
        "steps": f"{state.step:,} of {optimizer.batch_size} inputs",
        "learning rate": f"{optimizer.learning_rate:g}, warm-up {session.schedule.warmup_steps:,} steps, linear decay",
        "optimizer": f"BERT's Adam, weight decay {optimizer.weight_decay:g}, clip {optimizer.clip_norm:g}",
        "dropout": f"{optimizer.dropout:g}",
        "input": f"`{limits.truncation}`, {query}in all {limits.max_length} tokens",
        "seed": str(config.seed),
        "device": f"{session.processes.count} x {_device(session.processes.device)}, {str(session.dtype)[6:]}",
        "time": f"{state.seconds / 60:,.1f} minutes",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"## How it was made\n\n    {command}\n\n| | |\n|---|---|\n{table}\n\nCurves: `training/curves.svg`.\n"


def _start(session: Session) -> str:
    """The start, without a path of this machine."""
    reference = session.start.reference
    name = storage.name(reference) if reference.startswith("/") else session.config.start
    if session.config.random_weights:
        return f"random weights, configuration of {name}"
    new = session.kind != "tcp" and session.start.lines(session.labels)
    return f"{name}; its head of {counted(session.start.labels or 0, 'label')} is not used" if new else name


def _data(session: Session) -> str:
    data = session.config.data
    files = {name: getattr(data, name) for name in ("triples", "qrels", "run", "teacher")}
    files |= {name: section.path for name in ("corpus", "topics") if (section := getattr(data, name))}
    named = {name: paths_of(paths) for name, paths in files.items() if paths}
    lines = [f"- {line}" for line in session.config.card.data] or ["- The configuration names no data sets."]
    lines += [f"- {name}: `{storage.name(path)}`" for name, paths in named.items() for path in paths]
    if session.source.groups_per_epoch:
        lines.append(
            f"- groups of a query and {session.source.docs_per_group} docs: {session.source.groups_per_epoch:,}"
        )
    lines += [f"- {line}" for line in session.data_lines()]
    return "\n".join(["## Trained on\n", *lines, ""])


def _figures(session: Session, state: TrainState) -> str:
    if session.dev is None:
        return "## Figures\n\nNone: the training had no dev run.\n"
    dev = session.dev
    return (
        f"## Figures\n\nThe dev run, {len(dev.qrels.relevance):,} topics, the first {dev.k} candidates re-ranked. The "
        f"best of the measured steps was kept,\nso this is not a test result.\n\n| run | {dev.measure} |\n|---|---|\n"
        f"| as given | {dev.first_stage():.4f} |\n"
        f"| re-ranked, step {state.best_step:,} | {state.best_value:.4f} |\n"
    )


def _device(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU ({platform.machine()})"

"""The model card, README.md in a model's folder: training data, hyperparameters and measured
effectiveness.
"""

import platform
from importlib.resources import files

import torch
import yaml
from jinja2 import Environment, StrictUndefined

from beamrank.formats.files import paths_of
from beamrank.notes import counted
from beamrank.storage import files as storage
from beamrank.version import __version__
from models.checkpoints.sources import hub_id
from models.training.config import DataConfig, TrainConfig
from models.training.session import Session
from models.training.states import TrainState


def card_path(config: TrainConfig) -> str:
    """README.md in the output folder."""
    return storage.join(config.output, "README.md")


def write_card(session: Session, state: TrainState, command: str) -> None:
    """Writes README.md to the output folder."""
    config, processes = session.config, session.processes
    head = {
        "pipeline_tag": "fill-mask" if session.kind == "tcp" else "text-ranking",
        "base_model": None if config.random_weights else hub_id(session.start.reference),
        "license": config.card.licence,
        "language": config.card.language,
    }
    on_gpu = processes.device.type == "cuda"
    template = files(__package__).joinpath("card.md.j2").read_text(encoding="utf-8")
    # Markdown is not escaped.
    card = Environment(  # noqa: S701
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    ).from_string(template)
    content = card.render(
        **{
            name: getattr(session, name)
            for name in ("kind", "labels", "config", "schedule", "source", "dev")
        },
        head=yaml.safe_dump({key: value for key, value in head.items() if value}, sort_keys=False),
        name=storage.name(config.output),
        sizes=session.model.config,
        parameters=sum(parameter.numel() for parameter in session.model.parameters()),
        version=__version__,
        command=command,
        start=_start(session),
        optimizer=config.optimizer,
        state=state,
        processes=processes.num_processes,
        device=torch.cuda.get_device_name() if on_gpu else f"CPU ({platform.machine()})",
        dtype=str(session.dtype).removeprefix("torch."),
        files=_files(config.data),
        notes=session.data_lines(),
    )
    storage.replace(card_path(config), content.encode())


def _start(session: Session) -> str:
    """The start, without a path of this machine."""
    reference = session.start.reference
    name = storage.name(reference) if reference.startswith("/") else session.config.start
    if session.config.random_weights:
        return f"random weights, configuration of {name}"
    new = session.kind != "tcp" and session.start.lines(session.labels)
    return (
        f"{name}; its head of {counted(session.start.labels or 0, 'label')} is not used"
        if new
        else name
    )


def _files(data: DataConfig) -> list[tuple[str, str]]:
    """Each file with its key, without its folder."""
    files = {name: getattr(data, name) for name in ("triples", "qrels", "run", "teacher")}
    files |= {
        name: section.path for name in ("corpus", "topics") if (section := getattr(data, name))
    }
    return [
        (name, storage.name(path))
        for name, paths in files.items()
        if paths
        for path in paths_of(paths)
    ]

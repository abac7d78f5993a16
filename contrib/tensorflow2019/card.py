"""The model card of a converted checkpoint: what it is, and from which files it was made."""

import os
from collections.abc import Sequence

from beamrank.storage import files as storage
from beamrank.version import __version__
from contrib.tensorflow2019.original_bert import PRETRAINED
from contrib.tensorflow2019.source import Source
from contrib.tensorflow2019.tensor_bundle import TensorBundle

_RANKER = """Input: `[CLS] query [SEP] {docs} [SEP]`, each part with a token type of its own, from 0. The score is
logit 1 (`relevant`) less logit 0 (`not_relevant`): the log-odds that {asked}."""
_DOCS = {"mono": "passage", "duo": "passage i [SEP] passage j"}
_ASKED = {"mono": "the passage is relevant", "duo": "passage i is more relevant than passage j"}
_ENCODER = """It holds the encoder, its pooler and {heads}. It cannot rank before it is fine-tuned: it is a `start` of
`beamrank train`."""
_HEADS = {
    "pretraining": "the heads of masked words and of next sentences",
    "masked_lm": "the head of masked words, without that of next sentences",
}


def render_card(kind: str, source: Source, bundle: TensorBundle, command: str, warnings: Sequence[str]) -> str:
    """The text of README.md."""
    step = f", step {int(bundle.read('global_step')):,}" if "global_step" in bundle.entries else ""
    files = [*bundle.files, source.config, source.vocabulary]
    rows = "\n".join(
        f"| {storage.name(path)} | {os.path.getsize(path):,} | `{storage.sha256(path)}` |" for path in files
    )
    notes = "".join(f"\n- {warning}" for warning in warnings)
    encoder = kind in PRETRAINED
    use = _ENCODER.format(heads=_HEADS[kind]) if encoder else _RANKER.format(docs=_DOCS[kind], asked=_ASKED[kind])
    model = "pre-trained BERT" if encoder else f"{kind}BERT"
    return f"""---
library_name: transformers
pipeline_tag: {"fill-mask" if encoder else "text-ranking"}
---
# {os.path.basename(source.prefix)}, converted

A {model} of BERT's original TensorFlow code{step}, converted by beamrank {__version__}. The weights are float32 and
as they were; nothing was trained. The licence is the original's.

{use}

    {command}

| made from | bytes | SHA-256 |
|---|---|---|
{rows}
{notes}
"""

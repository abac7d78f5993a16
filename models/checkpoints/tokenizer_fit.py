"""Whether a tokenizer is the one of a model: one rule for runs and trainings."""

from collections.abc import Mapping
from typing import Any

from beamrank.errors import PreflightError
from beamrank.records import NO_TOKEN, SpecialTokens

# Tables of embeddings are padded to a multiple of this for a GPU.
_PADDED_ROWS = 128
# The keys of config.json that name a special token. RoBERTa's positions depend on the id of padding, and the other
# two are those that begin and end its texts. Elsewhere they mean little: models with another family's tokenizer have
# them from their family, and padding is not read.
_KEYS = {"cls_id": ("cls_token_id",), "sep_id": ("sep_token_id",)}
_ROBERTA_KEYS = {
    "pad_id": ("pad_token_id",),
    "cls_id": ("cls_token_id", "bos_token_id"),
    "sep_id": ("sep_token_id", "eos_token_id"),
}
_ROBERTAS = ("roberta", "xlm-roberta", "camembert")


def check_fit(
    reference: str, config: Mapping[str, Any], rows: int, ids: int, special: SpecialTokens
) -> tuple[str, ...]:
    """Compares a tokenizer with a model.

    Args:
        reference: names the checkpoint.
        config: its config.json.
        rows: of its table of embeddings.
        ids: the tokenizer gives ids from 0 to `ids` - 1, and the model needs an embedding for each.
        special: the tokenizer's special tokens.

    Returns:
        Warnings: the table has many more rows than the tokenizer ids, or padding has another id.

    Raises:
        PreflightError: an id has no row, or config.json names another id for a special token.
    """
    if ids > rows:
        raise PreflightError(
            f"the tokenizer of the checkpoint {reference} has {ids:,} ids and the model's embedding table "
            f"{rows:,} rows: it is not the tokenizer that the model was trained with, and some of its tokens have "
            "no embedding. Give the checkpoint its own tokenizer"
        )
    keys = _ROBERTA_KEYS if config.get("model_type") in _ROBERTAS else _KEYS
    for role, names in keys.items():
        found = getattr(special, role)
        for key in names:
            wanted = config.get(key)
            if found != NO_TOKEN and isinstance(wanted, int) and wanted >= 0 and wanted != found:
                raise PreflightError(
                    f"the tokenizer of the checkpoint {reference} has the id {found} for its {role[:3]}_token, and "
                    f"config.json has {key} {wanted}: it is probably not the tokenizer that the model was trained "
                    f"with. Give the checkpoint its own tokenizer; if this is it, set {key} to {found} in config.json"
                )
    warnings = []
    padding = config.get("pad_token_id")
    if isinstance(padding, int) and special.pad_id not in (padding, NO_TOKEN) and padding >= 0:
        warnings.append(
            f"the tokenizer of {reference} pads with the id {special.pad_id}, and config.json has pad_token_id "
            f"{padding}: no score depends on it, but check that the tokenizer is the one of the model"
        )
    if rows > -(-ids // _PADDED_ROWS) * _PADDED_ROWS:
        warnings.append(
            f"the tokenizer of {reference} has {ids:,} ids and the model's embedding table {rows:,} rows, more than "
            f"padding to a multiple of {_PADDED_ROWS} explains: if it is not the tokenizer that the model was trained "
            "with, tokens mean other words than the model has learned, and scores rank at random"
        )
    return tuple(warnings)

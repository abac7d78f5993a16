"""The layout of a pair as a checkpoint's tokenizer makes it."""

from itertools import groupby
from typing import Any

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputTemplate
from models.sentencepiece_format import provide_sentencepiece_format


def load_folder_tokenizer(folder: str, reference: str) -> Any:
    """The tokenizer of a local folder as transformers loads it; neither code of the folder nor the network is used.

    Args:
        folder: has the tokenizer's files.
        reference: names the checkpoint in errors.

    Raises:
        PreflightError: it cannot be loaded.
    """
    from transformers import AutoTokenizer

    provide_sentencepiece_format()
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # The errors of damaged files are of any type.
    except Exception as error:
        raise PreflightError(
            f"transformers cannot load the tokenizer of the checkpoint {reference}: {type(error).__name__}: "
            f"{error!s:.400}"
        ) from error


def read_pair_layout(folder: str, reference: str) -> InputTemplate:
    """The special tokens and token types that the tokenizer of a local folder puts around a query and a doc.

    Args:
        folder: has the tokenizer's files.
        reference: names the checkpoint in errors.

    Raises:
        PreflightError: the tokenizer cannot be loaded, or puts nothing between the two texts.
    """
    tokenizer = load_folder_tokenizer(folder, reference)
    if not tokenizer.is_fast:
        raise PreflightError(
            f"the checkpoint {reference} is scored through transformers, which has no fast tokenizer for its files: "
            "add a tokenizer.json"
        )
    pair = tokenizer("a", "a", return_token_type_ids="token_type_ids" in tokenizer.model_input_names)
    ids, sequences = pair["input_ids"], pair.sequence_ids(0)
    types = pair.get("token_type_ids", [0] * len(ids))
    runs = [(text, [place for place, _ in run]) for text, run in groupby(enumerate(sequences), lambda each: each[1])]
    start = tuple(ids[place] for place in runs.pop(0)[1]) if sequences[0] is None else ()
    if [text for text, _ in runs] not in ([0, None, 1], [0, None, 1, None]):
        raise PreflightError(
            f"the tokenizer of the checkpoint {reference} puts no token between a query and a doc, so beamrank does "
            "not know the input that its model was trained on"
        )
    texts = [types[places[0]] for text, places in runs if text is not None]
    ends = [tuple(ids[place] for place in places) for text, places in runs if text is None]
    # The batches have no padding, so its id does not matter.
    return InputTemplate(start, (ends[0], ends[1] if len(ends) > 1 else ()), (texts[0], texts[1]), 0)

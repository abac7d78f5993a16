"""The layout of a pair as a checkpoint's tokenizer makes it."""

import os
from itertools import groupby

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputTemplate


def read_pair_layout(folder: str, reference: str) -> InputTemplate:
    """The special tokens and token types that the tokenizer of a local folder puts around a query and a doc.

    Args:
        folder: has a tokenizer.json. Neither code of the folder nor the network is used.
        reference: names the checkpoint in errors.

    Raises:
        PreflightError: the tokenizer cannot be loaded, or puts nothing between the two texts.
    """
    from transformers import AutoTokenizer

    if not os.path.isfile(os.path.join(folder, "tokenizer.json")):
        raise PreflightError(
            f"the checkpoint {reference} is scored through transformers, which takes the layout of a pair from "
            f"tokenizer.json, and {folder} has none: save it where the tokenizer can be loaded "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)`) and add it to the checkpoint"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        pair = tokenizer("a", "a", return_token_type_ids="token_type_ids" in tokenizer.model_input_names)
    # The errors of damaged files are of any type.
    except Exception as error:
        raise PreflightError(
            f"transformers cannot lay out a pair with the tokenizer of the checkpoint {reference}: "
            f"{type(error).__name__}: {error!s:.400}"
        ) from error
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

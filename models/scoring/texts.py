"""Scores texts: tokenizes them, lays them out and scores each distinct input once."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.ranking.input_layout import InputLimits, PackedInputs, kept_lengths, max_doc_tokens
from models.checkpoints.checkpoint import Checkpoint
from models.scoring.engine import Scorer, StageCounts
from models.scoring.packing import distinct, number_texts
from models.tokenizers.base import Tokenizer


def score_texts(
    engine: Scorer, tokenizer: Tokenizer, limits: InputLimits, texts: Sequence[Sequence[str]]
) -> tuple[npt.NDArray[np.float32], StageCounts]:
    """Scores n inputs. Equal inputs are scored once.

    Args:
        engine: with a checkpoint for two texts (mono) or three (duo).
        tokenizer: of the checkpoint.
        limits: the truncation rule and its lengths.
        texts: the queries, docs and, for duo, second docs of the inputs; n each.

    Returns:
        float32[n] log-odds in the order of the inputs, and the counts for a receipt.

    Raises:
        DataError: a score is not finite.
    """
    architecture = engine.checkpoint.architecture
    template = architecture.template(tokenizer.special)
    most = max_doc_tokens(limits.max_length * template.doc_parts)
    queries, *docs = texts
    distinct_queries, query_numbers = _numbered(queries)
    distinct_docs, doc_numbers = _numbered(list(chain(*docs)))
    columns = tokenizer.encode_queries(distinct_queries, most), tokenizer.encode(distinct_docs, most)
    ids = pa.concat_arrays([column.ids for column in columns])
    cut = np.concatenate([column.truncated for column in columns])
    offsets, values = ids.offsets.to_numpy().astype(np.int64), ids.values.to_numpy()
    tokens = np.concatenate([values, np.zeros(1, values.dtype)])
    numbers = np.stack([query_numbers, *np.split(len(distinct_queries) + doc_numbers, len(docs))], axis=1)
    starts = offsets[numbers]
    lengths = offsets[numbers + 1] - starts
    kept = np.stack(kept_lengths(template, limits, list(lengths.T)), axis=1)
    rows, inverse = distinct(*(number_texts(tokens, *each) for each in zip(starts.T, kept.T, strict=True)))
    scores = engine.score(PackedInputs(tokens, starts[rows], kept[rows], template))
    truncated = (kept < lengths) | cut[numbers]
    return scores.log_odds[inverse], StageCounts(
        **scores.cost,
        queries=len(np.unique(numbers[:, 0])),
        candidates=len(numbers),
        truncated_queries=len(np.unique(numbers[truncated[:, 0], 0])),
        truncated_docs=int(np.count_nonzero(truncated[:, 1:])),
        duplicate_inputs=len(numbers) - len(rows),
    )


def _numbered(texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct texts, and for each text which of them it is."""
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(number_of), np.array([number_of[text] for text in texts], np.int64)


def check_limits(checkpoint: Checkpoint, tokenizer: Tokenizer, limits: InputLimits) -> None:
    """Raises ConfigError where the limits do not fit inputs with as many texts as the checkpoint's."""
    template = checkpoint.architecture.template(tokenizer.special)
    kept_lengths(template, limits, [np.empty(0, np.int64)] * len(template.ends))

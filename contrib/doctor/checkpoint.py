"""Whether a checkpoint ranks as it should: against transformers, in each dtype, and on queries with
known answers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from beamrank.errors import BeamrankError
from beamrank.ranking.input_layout import PackedInputs, PaddedBatch, lay_out
from models.checkpoints.checkpoint import input_warnings, resolve_checkpoint
from models.checkpoints.files import read_modules
from models.reranker import Reranker, RerankerKind

OK, NOTE, WRONG = "ok", "note", "WRONG"
_DTYPES = ("bfloat16", "float16")
_MAX_LENGTH = 512
# The relevant text of a query, the other one, and three of the next queries.
_CANDIDATES = 5
_COMPARED, _ALONE = 20, 8
# Of the range of the scores: float32 rounds by a thousandth of it at most, another layer or token
# changes more.
_LARGEST_DIFFERENCE = 0.01
# Of 40 coins, 32 fall on one side once in ten thousand times.
_RANKS, _REVERSED = 0.8, 0.2
_MOST_UNKNOWN = 0.2

Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Finding:
    """The result of a check: its `state` is OK, NOTE or WRONG; `figures` are for JSON."""

    check: str
    state: str
    found: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def check_checkpoint(
    reference: str, kind: str, options: Mapping[str, Any] | None = None
) -> list[Finding]:
    """All checks of a checkpoint; raises PreflightError where it cannot be scored at all."""
    disable_progress_bar()  # type: ignore[no-untyped-call]
    checked = Checked(reference, kind, options)
    return [
        checked.identity(),
        checked.labels(),
        *checked.layout(),
        checked.truncation(),
        checked.against_transformers(),
        checked.neighbours(),
        checked.ties(),
        *checked.dtypes(),
        checked.answers(),
    ]


def triples() -> list[tuple[str, str, str]]:
    """Forty queries, each with a relevant text and one that is not."""
    lines = (
        files("contrib.doctor").joinpath("triples.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return [(row["query"], row["relevant"], row["not_relevant"]) for row in map(json.loads, lines)]


class Checked:
    """A checkpoint with its scores of all inputs in float32."""

    def __init__(self, reference: str, kind: str, options: Mapping[str, Any] | None = None) -> None:
        self._reference, self._kind = reference, cast(RerankerKind, kind)
        self._options = options or {}
        self._checkpoint = resolve_checkpoint(reference, kind, options=options)
        self._template = self._checkpoint.architecture.template
        rows = triples()
        self._inputs: list[tuple[str, ...]]
        if self._kind == "duo":
            # Both orders: a model that prefers a place is right in one of them.
            self._inputs = [
                (query, *both) for query, *texts in rows for both in (texts, texts[::-1])
            ]
        else:
            texts = [text for _, *both in rows for text in both]
            self._inputs = [
                (query, texts[(2 * row + place) % len(texts)])
                for row, (query, *_) in enumerate(rows)
                for place in range(_CANDIDATES)
            ]
        self._rows = len(rows)

    def _load(self, dtype: str) -> Reranker:
        length = min(_MAX_LENGTH, self._checkpoint.architecture.positions)
        return Reranker(
            self._reference, self._kind, dtype=dtype, max_length=length, **self._options
        )

    @cached_property
    def _model(self) -> Reranker:
        return self._load("float32")

    @cached_property
    def _scores(self) -> Scores:
        """float32[queries, inputs of each]."""
        return self._model.score(self._inputs).reshape(self._rows, -1)

    @cached_property
    def _tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self._checkpoint.folder)

    @cached_property
    def _words(self) -> tuple[int, ...]:
        """The ids of the answers of a language model."""
        return getattr(self._checkpoint.architecture, "words", ())

    def identity(self) -> Finding:
        checkpoint, architecture = self._checkpoint, self._checkpoint.architecture
        name = ", ".join(
            checkpoint.config.get("architectures") or [str(checkpoint.config.get("model_type"))]
        )
        words = f"{name}, {architecture.positions} positions, digest {checkpoint.digest[:12]}"
        state = NOTE if architecture.warnings else OK
        return Finding(
            "checkpoint",
            state,
            ". ".join([words, *architecture.warnings]),
            {"digest": checkpoint.digest},
        )

    def labels(self) -> Finding:
        if self._words:
            words = self._tokenizer.convert_ids_to_tokens(list(self._words))
            shown = " minus that of ".join(map(repr, reversed(words)))
            return Finding("labels", OK, f"the score is the logit of {shown}", {"words": words})
        count = self._checkpoint.architecture.num_labels
        names = self._checkpoint.config.get("id2label")
        rule = "the score is the logit" if count == 1 else "the score is logit 1 - logit 0"
        shown = "" if names is None else f", id2label {json.dumps(names)}"
        return Finding(
            "labels", OK, f"{count} of them{shown}: {rule}", {"count": count, "id2label": names}
        )

    def layout(self) -> Iterator[Finding]:
        """The tokens around the texts, and whether the tokenizer of transformers puts them there
        too.
        """
        template = self._template(self._model.tokenizer.special)
        around = [self._tokenizer.decode(list(ids)) for ids in (template.start, *template.ends)]
        names = ["query", "doc"] if len(template.ends) == 2 else ["query", "doc_i", "doc_j"]
        shown = " ".join(
            [around[0], *(word for pair in zip(names, around[1:], strict=True) for word in pair)]
        ).strip()
        if self._checkpoint.joins is not None:
            yield Finding("special tokens", OK, "the prompt's")
            yield Finding("prompt", OK, shown, {"prompt": shown})
            return
        laid_out = [self._lay_out(texts) for texts in self._inputs[:_COMPARED]]
        unknown = self._tokenizer.unk_token_id
        share = float(
            np.mean(np.concatenate([batch.token_ids[0] for batch in laid_out]) == unknown)
        )
        differ = 0
        if self._kind == "mono":
            theirs = [self._tokenizer(*texts)["input_ids"] for texts in self._inputs[:_COMPARED]]
            differ = sum(
                one.token_ids[0].tolist() != ids for one, ids in zip(laid_out, theirs, strict=True)
            )
        state = WRONG if share > _MOST_UNKNOWN else NOTE if differ else OK
        words = (
            f"{shown}, token types {' '.join(map(str, template.token_types))}; {share:.1%} of "
            "tokens are unknown"
        )
        if differ:
            words += f"; {differ} of {len(laid_out)} inputs have other ids in transformers"
        figures = {"input": shown, "token_types": list(template.token_types), "unknown": share}
        yield Finding("special tokens", state, words, {**figures, "differ": differ})
        yield Finding("prompt", OK, "none", {"prompt": None})

    def truncation(self) -> Finding:
        """The end of a long text that is read."""
        query, relevant, other = triples()[0]
        filler = " ".join([other] * _MAX_LENGTH * self._checkpoint.doc_parts)
        texts = [
            f"{relevant} {filler}",
            f"{relevant} {filler} {relevant}",
            f"{filler} {relevant}",
            filler,
        ]
        inputs = [(query, text) if self._kind == "mono" else (query, text, other) for text in texts]
        first, same, last, without = self._model.score(inputs).tolist()
        words = (
            f"an answer at the beginning of a long text scores {first:.2f}, at its end {last:.2f}"
        )
        figures = {"beginning": first, "end": last, "without": without}
        lengths = {"max_length": self._model.limits.max_length}
        state, shown = OK, f"{words}: ends are cut"
        if first != same or last != without:
            state, shown = WRONG, f"{words}: what is cut changes scores"
        elif warnings := input_warnings(self._checkpoint, lengths):
            state, shown = NOTE, ". ".join([words, *warnings])
        return Finding("truncation", state, shown, figures)

    def against_transformers(self) -> Finding:
        """The log-odds of some inputs, computed by transformers in float32, one by one."""
        try:
            theirs = self._transformers()
        # transformers has errors of any type for models that it does not know.
        except Exception as error:
            return Finding("transformers", NOTE, f"not compared: {error!s:.300}")
        ours = self._scores.ravel()[: len(theirs)]
        difference = float(np.abs(ours - theirs).max())
        state = OK if difference <= _LARGEST_DIFFERENCE * np.ptp(ours) else WRONG
        words = f"log-odds of {len(theirs)} inputs differ by at most {difference:.2g} in float32"
        return Finding(
            "transformers", state, words, {"inputs": len(theirs), "largest_difference": difference}
        )

    def _transformers(self) -> Scores:
        checkpoint, folder = self._checkpoint, self._checkpoint.folder
        if len(read_modules(folder)) > 1 and not self._words:
            raise ValueError(
                "its head is in modules of sentence-transformers, which transformers does not read"
            )
        name = (checkpoint.config.get("architectures") or [""])[0]
        if not hasattr(transformers, name):
            raise ValueError(f"transformers has no {name or 'class for it'}")
        model = getattr(transformers, name).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        with torch.inference_mode():
            log_odds = [self._log_odds(model.eval(), texts) for texts in self._inputs[:_COMPARED]]
        return np.array(log_odds, np.float32)

    def _log_odds(self, model: Any, texts: Sequence[str]) -> float:
        if self._kind == "mono" and self._checkpoint.joins is None:
            # Its own tokens: they may be others.
            logits = model(**self._tokenizer(*texts, return_tensors="pt")).logits[0]
        else:
            batch = self._lay_out(texts)
            given = {"input_ids": torch.from_numpy(batch.token_ids).long()}
            if any(batch.token_types[0]):
                given["token_type_ids"] = torch.from_numpy(batch.token_types).long()
            if model.config.is_encoder_decoder:
                given["decoder_input_ids"] = torch.tensor([[model.config.decoder_start_token_id]])
            logits = model(**given).logits[0]
            logits = logits[-1, list(self._words)] if self._words else logits
        return float(logits[1] - logits[0] if len(logits) == 2 else logits[0])

    def _lay_out(self, texts: Sequence[str]) -> PaddedBatch:
        """An input that is not cut, as the model gets it."""
        tokenizer = self._model.tokenizer
        columns = [
            tokenizer.encode_queries(texts[:1], _MAX_LENGTH),
            tokenizer.encode(texts[1:], _MAX_LENGTH),
        ]
        ids = [np.asarray(text.as_py()) for column in columns for text in column.ids]
        lengths = np.array([[len(text_ids) for text_ids in ids]])
        tokens = np.append(np.concatenate(ids), 0).astype(np.uint32)
        inputs = PackedInputs(
            tokens, np.cumsum(lengths, axis=1) - lengths, lengths, self._template(tokenizer.special)
        )
        return lay_out(inputs, np.array([0]), int(inputs.lengths[0]))

    def neighbours(self) -> Finding:
        """Whether a score is the same alone as beside 199 others."""
        inputs = self._inputs[:_ALONE]
        alone = np.concatenate([self._model.score([texts]) for texts in inputs])
        beside = self._scores.ravel()[: len(inputs)]
        changed = int(np.count_nonzero(alone != beside))
        difference = float(np.abs(alone - beside).max())
        words = f"{changed} of {len(inputs)} scores differ alone and beside others"
        words += f", by at most {difference:.2g}" if changed else ""
        state = OK if not changed else NOTE if torch.cuda.is_available() else WRONG
        return Finding(
            "neighbours", state, words, {"changed": changed, "largest_difference": difference}
        )

    def ties(self) -> Finding:
        """How many inputs have the score of another."""
        scores = self._scores.ravel()
        distinct = len(np.unique(scores))
        spread = float(np.ptp(scores))
        words = (
            f"{distinct} different scores of {len(scores)} inputs, from {scores.min():.2f} to "
            f"{scores.max():.2f}"
        )
        state = OK if distinct == len(scores) else NOTE if distinct > len(scores) // 2 else WRONG
        return Finding(
            "ties", state, words, {"scores": len(scores), "distinct": distinct, "spread": spread}
        )

    def dtypes(self) -> Iterator[Finding]:
        """The effect of fewer bits on the orders of the float32 scores."""
        for dtype in _DTYPES:
            try:
                scores = self._load(dtype).score(self._inputs).reshape(self._rows, -1)
            except BeamrankError as error:
                yield Finding(dtype, NOTE, f"cannot be used: {error}")
                continue
            changed = int(
                np.count_nonzero(np.any(self._order(scores) != self._order(self._scores), axis=1))
            )
            right, before = self._accuracy(scores), self._accuracy(self._scores)
            difference = float(np.abs(scores - self._scores).max())
            state = OK if abs(right - before) < 1 - _RANKS else WRONG
            words = (
                f"log-odds differ by at most {difference:.2g}; {changed} of {self._rows} "
                "queries are ordered otherwise"
            )
            figures = {"largest_difference": difference, "changed": changed, "accuracy": right}
            figures["distinct"] = len(np.unique(scores))
            yield Finding(dtype, state, f"{words}; {right:.0%} of answers first", figures)

    def answers(self) -> Finding:
        """How often the relevant text is above the other one."""
        right = self._accuracy(self._scores)
        words = f"{right:.0%} of {self._rows} queries have the relevant text above the other"
        figures = {"queries": self._rows, "accuracy": right}
        if right >= _RANKS:
            return Finding("answers", OK, words, figures)
        if right <= _REVERSED:
            why = "its labels are reversed: swap the rows of the classifier, or its sign"
        else:
            why = (
                "about as often as by chance: its head was never trained to rank, or the "
                "tokenizer is another's"
            )
        return Finding("answers", WRONG, f"{words}; {why}", figures)

    def _order(self, scores: Scores) -> NDArray[Any]:
        """The decisions of each query's scores: of docs their order, of pairs who wins."""
        return scores > 0 if self._kind == "duo" else np.argsort(-scores, axis=1, kind="stable")

    def _accuracy(self, scores: Scores) -> float:
        margins = scores[:, :2] * [1, -1] if self._kind == "duo" else scores[:, 0] - scores[:, 1]
        # A tie is right half of the time.
        return float(np.mean(np.sign(margins) / 2 + 0.5))

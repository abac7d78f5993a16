"""A causal language model of transformers that orders docs in this process."""

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from beamrank.errors import BeamrankError, PreflightError
from beamrank.machine import usable_threads
from contrib.listwise.checkpoint import LanguageModel
from contrib.listwise.client import Reply
from contrib.listwise.prompt import LETTERS, Messages
from models.architectures.transformers import without_bars
from models.stages.scoring import check_planned

# Before the identifiers of an answer.
_OPENING = "["


class LocalAccess(NamedTuple):
    """What decides a model in this process: its checkpoint with its digest, and how it computes."""

    checkpoint: str
    digest: str
    by_logits: bool
    device: str
    dtype: str
    threads: int


class LocalModel:
    """The model, for one prompt at a time; it is asked as a `Server` is.

    Raises:
        PreflightError: the checkpoint changed, or cannot answer so.
    """

    def __init__(self, access: LocalAccess) -> None:
        checkpoint = LanguageModel.read(access.checkpoint)
        check_planned(access.checkpoint, checkpoint.digest, access.digest)
        torch.set_num_threads(usable_threads(access.threads))
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        self._tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, **options)
        try:
            with without_bars():
                model: Any = AutoModelForCausalLM.from_pretrained(
                    checkpoint.folder, dtype=getattr(torch, access.dtype), **options
                )
        except (OSError, ValueError) as error:
            raise PreflightError(
                f"the checkpoint {access.checkpoint} is no causal language model that "
                f"transformers loads: {error}. Serve it, and give `endpoint`"
            ) from error
        self._model, self._lock = model.to(access.device).eval(), Lock()
        self._access = access
        self._letters = self._letter_ids() if access.by_logits else []
        self._room = getattr(model.config, "max_position_embeddings", None)
        ends = {self._tokenizer.eos_token_id, *_ids(model.generation_config.eos_token_id)}
        self._ends = sorted(end for end in ends if end is not None)

    def ask(self, _model: str, messages: Messages, max_tokens: int) -> Reply:
        """The answer to a prompt; raises BeamrankError where the prompt is too long."""
        ids = self._prompt(messages)
        max_tokens = 1 if self._letters else max_tokens
        if self._room is not None and len(ids) + max_tokens > self._room:
            raise BeamrankError(
                f"a prompt of {len(ids):,} tokens and an answer of {max_tokens:,} are more than "
                f"the {self._room:,} positions of {self._access.checkpoint}: lower `window`, "
                "`doc_words` or `max_answer_tokens`"
            )
        inputs = torch.tensor([ids], device=self._access.device)
        with self._lock, torch.inference_mode():
            if self._letters:
                logits = self._model(inputs).logits[0, -1, self._letters].float()
                order = torch.argsort(logits, descending=True, stable=True).tolist()
                return Reply(" > ".join(f"[{place + 1}]" for place in order), len(ids), 1)
            rules = GenerationConfig(  # type: ignore[no-untyped-call]
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=self._ends or None,
                pad_token_id=(self._ends or [0])[0],
            )
            answer = self._model.generate(
                inputs, attention_mask=torch.ones_like(inputs), generation_config=rules
            )[0, len(ids) :]
        text = str(self._tokenizer.decode(answer, skip_special_tokens=True))
        return Reply(text, len(ids), len(answer))

    def _prompt(self, messages: Messages) -> list[int]:
        """The tokens up to the answer: by the checkpoint's chat template, if it has one."""
        is_chat = bool(self._tokenizer.chat_template)
        if is_chat:
            text = str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True
                )
            )
        else:
            text = "".join(f"{message['content']}\n" for message in messages)
        opening = _OPENING if self._letters else ""
        return self._tokens(text + opening, special=not is_chat)

    def _letter_ids(self) -> list[int]:
        """The token of each letter after the opening bracket."""
        opening = self._tokens(_OPENING)
        found = [self._tokens(_OPENING + letter) for letter in LETTERS]
        last = [tokens[-1] for tokens in found]
        if any(tokens[:-1] != opening for tokens in found) or len({*last}) < len(last):
            raise PreflightError(
                f"the tokenizer of {self._access.checkpoint} has no token of its own for each "
                "letter after [, which `answer: logits` compares: use `answer: text`"
            )
        return last

    def _tokens(self, text: str, special: bool = False) -> list[int]:
        return [*self._tokenizer(text, add_special_tokens=special)["input_ids"]]


def _ids(ids: int | Sequence[int] | None) -> list[int]:
    return [] if ids is None else [ids] if isinstance(ids, int) else [*ids]


@lru_cache(maxsize=1)
def local_model_of(access: LocalAccess) -> LocalModel:
    """This process's, for all its shards."""
    return LocalModel(access)

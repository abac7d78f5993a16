"""A checkpoint in the place of sentence-transformers' CrossEncoder."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from beamrank.errors import ConfigError
from beamrank.frames import Frame
from models.reranker import Reranker

# What decides in place of an argument.
_INSTEAD = {
    "modules": "give a checkpoint",
    "num_labels": "an input has one score",
    **dict.fromkeys(("prompts", "default_prompt_name"), "the checkpoint's prompt stands"),
    **dict.fromkeys(("prompt", "prompt_name"), "the checkpoint's prompt stands"),
    "cache_folder": "set HF_HOME",
    "local_files_only": "set HF_HUB_OFFLINE=1",
    "token": "set HF_TOKEN",
    "trust_remote_code": "a checkpoint's code is never run",
    "model_kwargs": "give options of beamrank.Reranker, such as dtype",
    "processor_kwargs": "change the checkpoint's tokenizer_config.json",
    "config_kwargs": "change the checkpoint's config.json",
    "processing_kwargs": "give options of beamrank.Reranker, such as max_length",
    "model_card_data": "there is no card",
    "keep_in_fp32_modules": "the head is always float32",
    "apply_softmax": "give activation_fn=torch.nn.Sigmoid() for a probability",
    "device": "give it to CrossEncoder",
    "pool": "make a CrossEncoder in each process",
}


class CrossEncoder:
    """A `beamrank.Reranker` of kind mono with the methods of sentence-transformers' CrossEncoder.

    All of its arguments are taken at their defaults. `batch_size`, `show_progress_bar`,
    `chunk_size` and `num_workers` have no effect; any other that means nothing here is an error.
    """

    num_labels = 1
    # Evaluators write figures into the card of a model, and this one has none.
    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def __init__(
        self,
        model_name_or_path: str | Reranker,
        *,
        revision: str | None = None,
        device: str | None = None,
        max_length: int | None = None,
        activation_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        """Loads the checkpoint.

        Args:
            model_name_or_path: a `beamrank.Reranker` of kind mono, or what its first argument can
                be.
            revision: of a Hugging Face id.
            device: as for `beamrank.Reranker`.
            max_length: of an input, in tokens; default: 512.
            activation_fn: for `predict` and `rank`, by default.
            **options: as for `beamrank.Reranker`, such as `truncation="hf"`, with which texts are
                cut as in sentence-transformers; and CrossEncoder's others at their defaults.

        Raises:
            ConfigError: an argument means nothing here, or the Reranker is a duo.
            PreflightError: as `beamrank.Reranker`.
        """
        _refuse(**{name: options.pop(name) for name in _INSTEAD if name in options})
        if isinstance(model_name_or_path, Reranker):
            self.reranker = model_name_or_path
        else:
            name = f"{model_name_or_path}@{revision}" if revision else model_name_or_path
            if max_length is not None:
                options["max_length"] = max_length
            self.reranker = Reranker(name, device=device or "auto", **options)
        if self.reranker.kind != "mono":
            raise ConfigError(
                "a Reranker of kind 'duo' compares two texts: rank with `beamrank.rerank`"
            )
        self.activation_fn = activation_fn

    def predict(
        self,
        inputs: Sequence[str] | Iterable[Sequence[str]] | Frame,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,  # noqa: ARG002
        show_progress_bar: bool | None = None,  # noqa: ARG002
        activation_fn: Callable[[Any], Any] | None = None,
        apply_softmax: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        pool: object = None,
        chunk_size: int | None = None,  # noqa: ARG002
        *,
        num_workers: int = 0,  # noqa: ARG002
        processing_kwargs: object = None,
    ) -> Any:
        """The log-odds of pairs (query, text): `beamrank.Reranker.score`.

        Args:
            inputs: as for `score`, or one pair, whose score is a scalar.
            prompt_name: must be None.
            prompt: must be None.
            batch_size: has no effect: the engine makes its own batches, which decide no score on a
                CPU.
            show_progress_bar: has no effect.
            activation_fn: a function of torch, such as `torch.nn.Sigmoid()`, applied to the
                log-odds; by default the constructor's, else none, whatever the checkpoint's
                card names.
            apply_softmax: must be False: a pair has one score.
            convert_to_numpy: whether to give float32[n] of NumPy; else a list of tensors.
            convert_to_tensor: whether to give a tensor, float32[n], instead.
            device: must be None: it is an argument of the constructor.
            pool: must be None.
            chunk_size: has no effect.
            num_workers: has no effect.
            processing_kwargs: must be None.

        Raises:
            ConfigError: an argument means nothing here, or the inputs are a set.
            DataError: as `score`.
        """
        import torch

        _refuse(prompt_name=prompt_name, prompt=prompt, apply_softmax=apply_softmax)
        _refuse(device=device, pool=pool, processing_kwargs=processing_kwargs)
        is_one = isinstance(inputs, list | tuple | np.ndarray) and (
            len(inputs) > 0 and isinstance(inputs[0], str)
        )
        scores = torch.from_numpy(self.reranker.score([inputs] if is_one else inputs))  # type: ignore[list-item]
        # An empty torch.nn.Sequential is false, and asks for the log-odds.
        activate = self.activation_fn if activation_fn is None else activation_fn
        if activate is not None:
            scores = activate(scores)
        result = (
            scores if convert_to_tensor else scores.numpy() if convert_to_numpy else list(scores)
        )
        return result[0] if is_one else result

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The documents of one query, best first; ties keep their order.

        Args:
            query: of all documents.
            documents: their texts.
            top_k: how many of the best to give; by default all.
            return_documents: whether to give the texts.
            **options: as for `predict`; options about the form of scores have no effect.

        Returns:
            Each `{"corpus_id": its place in documents, "score": ...}`, with `return_documents` also
            `"text"`.

        Raises:
            ConfigError: an argument means nothing here.
            DataError: as `beamrank.Reranker.score`.
        """
        form = {"convert_to_numpy": True, "convert_to_tensor": False, "apply_softmax": False}
        pairs = [(query, text) for text in documents]
        scores = self.predict(pairs, **(options | form)).tolist()
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:top_k]
        texts = [{"text": documents[at]} if return_documents else {} for at in best]
        return [
            {"corpus_id": at, "score": scores[at], **text}
            for at, text in zip(best, texts, strict=True)
        ]


def _refuse(**arguments: Any) -> None:
    """Raises ConfigError for an argument of sentence-transformers that asks for something."""
    for name, value in arguments.items():
        if value and (name, value) != ("num_labels", CrossEncoder.num_labels):
            raise ConfigError(
                f"CrossEncoder: {name} {value!r:.100} means nothing here: {_INSTEAD[name]}"
            )

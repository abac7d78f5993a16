"""The section of a stage with a listwise language model."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from beamrank.config.stages import StageConfig
from beamrank.errors import PreflightError
from beamrank.section import CheckpointName, Path, Positive, Section
from beamrank.storage.documents import read_at_most
from contrib.listwise.client import Access
from contrib.listwise.prompt import LETTERS, NEEDED

_MOST_TEMPLATE_BYTES = 1 << 20
_AtOnce = Annotated[int, Field(ge=1, le=1000)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Seconds = Annotated[float, Field(gt=0)]


class KeyConfig(Section):
    """Where the key of a server is."""

    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """The environment variable that holds the server's key, on each worker."""


class TemplateConfig(Section):
    """A prompt, which a plan holds."""

    short = "path"
    path: Path = ""
    """The file of the prompt, in UTF-8, with the places `{docs}`, `{query}` and, as often as you
    like, `{num}`. A line `---` ends the system message.
    """
    text: str = Field("", repr=False)
    """What the file holds."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not values.get("path"):
            return values
        try:
            text = read_at_most(values["path"], _MOST_TEMPLATE_BYTES).decode()
        except (OSError, ValueError) as error:
            raise PreflightError(f"cannot read the template {values['path']}: {error}") from error
        missing = [place for place in NEEDED if place not in text]
        if missing:
            raise ValueError(f"the template lacks the place {' and '.join(missing)}")
        return {"text": text.removesuffix("\n")}


class ListwiseConfig(StageConfig):
    """A language model that orders docs in lists."""

    k: Positive = 20
    """How many candidates per query are ordered, at most."""
    window: Annotated[int, Field(ge=2, le=1000)] = 20
    """How many docs are in a request, at most."""
    stride: Positive = 10
    """How many docs nearer to the front each window of `sliding` begins than the one before it."""
    order: Literal["sliding", "blocks"] = "sliding"
    """Which windows are asked for. `sliding` goes from the end to the front, one window after
    another. `blocks` shows each pair of groups of `window` / 2 docs once, side by side, and adds
    Borda's count.
    """
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/]")] | None = None
    """The URL of a server of OpenAI's chat completions, up to `/chat/completions`."""
    model: str = ""
    """The name of the model at the server."""
    checkpoint: CheckpointName | None = None
    """A causal language model that workers load in place of `endpoint`, as a Hugging Face id, a
    folder or its URL.
    """
    answer: Literal["text", "logits"] = "text"
    """How a checkpoint answers. With `text` it writes the order; with `logits` the order is that of
    the identifiers' logits at its first token.
    """
    key: KeyConfig | None = None
    """Where the server's key is; only for https, or for this machine."""
    template: TemplateConfig | None = None
    """A file with the prompt; by default RankZephyr's."""
    identity: str = ""
    """What else decides answers, such as the server's version. After a change of this text, the
    stage is repeated.
    """
    doc_words: Positive = 300
    """How many words of a doc are in a request, at most, after `input.max_text_bytes`."""
    max_answer_tokens: Positive = 300
    """How many tokens an answer has, at most."""
    requests_at_once: _AtOnce = 8
    """How many requests a process has open at once, for all its shards."""
    requests_per_minute: Positive | None = None
    """How many requests a process sends in a minute, at most."""
    timeout_seconds: _Seconds = 120.0
    """How long a process waits for an answer."""
    max_requests: Positive | None = None
    """How many requests a run sends, at most, after reuse. If the server is not on this machine,
    give this key or confirm the run at a terminal.
    """
    max_unparsed: _Share = 0.05
    """Which share of the windows may have answers that name no doc, at most."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.stride > self.window:
            raise ValueError(
                f"stride {self.stride} is more than window {self.window}: docs between two windows "
                "would not be read"
            )
        if (self.endpoint is None) == (self.checkpoint is None):
            raise ValueError("give either `endpoint` or `checkpoint`")
        if (self.endpoint is None) != (not self.model):
            raise ValueError("`endpoint` needs `model`, the name there, and `checkpoint` has none")
        if self.answer == "logits" and (self.endpoint or self.window > len(LETTERS)):
            raise ValueError(
                f"`answer: logits` is for a `checkpoint`, and a window of {len(LETTERS)} docs at "
                "most, whose identifiers are letters"
            )
        is_secret = self.access.is_here or str(self.endpoint).startswith("https://")
        if self.key is not None and not is_secret:
            raise ValueError("a `key` goes only to https, or to this machine: change `endpoint`")
        return self

    @property
    def access(self) -> Access:
        """How the server is asked."""
        return Access(
            self.endpoint or "",
            self.key.env if self.key else "",
            self.requests_at_once,
            self.requests_per_minute,
            self.timeout_seconds,
        )

"""Prompts: the fixed text that a template in Jinja puts around the texts of an input.

Texts are tokenized long before they meet, so the template is rendered with marks in their places
and cut there. The pieces directly beside a text are tokenized with it as far as a token could cross
the border. A template that changes texts, or whose pieces do not have the ids of the whole, is
refused.
"""

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from beamrank.config.stages import OF_TOPICS
from beamrank.errors import ConfigError, PreflightError
from beamrank.ranking.input_layout import INPUT_TEXTS, InputTemplate
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.documents import digest
from models.tokenizers.base import TokenColumn
from models.tokenizers.library import LibraryTokenizer, load_with_transformers, read_library

_INSTRUCTION, _QUERY = "instruction", "query"
_TEXTS_OF = {len(names): names for names in INPUT_TEXTS.values()}
# The roles that sentence-transformers gives texts in a chat.
_ROLES = {_INSTRUCTION: "system", _QUERY: "query", "doc": "document"}
# Texts that a template may change: cases, markup, white space, code, the end of a long text.
_CHANGED = (
    "Is THIS <b>1</b> & 'that'?",
    " a\tb \n",
    "</think> {{ 1 }} {% if %}",
    "一 é " * 20_000,
)
# Texts whose ends a token could join to a prompt; white space there is read as in the whole where
# the tokenizer allows it.
_EDGES = tuple(f"{char}x 5{char}" for char in (*string.punctuation, *"aZ5é北ア。？！»”…🙂"))
_SPACED = (*_EDGES, " x ", "\nx\n", "\tx ")
_MARKS = ("\ue000", "\ue001", "\ue002", "\ue003")
# The sign, for sentence-transformers, of a template that gets each text in a list of parts.
_STRUCTURED = re.compile(r"content\[0\]|message\.content\[|\.type|['\"]type['\"]")
# How many characters from a text its border can be.
_NEAR = 64
# The most tokens that are kept of an instruction.
_WHOLE = 1 << 20


class Joins(NamedTuple):
    """The pieces of a prompt directly before and after each kind of text that are tokenized with
    it.

    `stripped` is whether texts lose the white space at their ends.
    """

    query: tuple[str, str] = ("", "")
    doc: tuple[str, str] = ("", "")
    instruction: tuple[str, str] = ("", "")
    stripped: bool = False


class PromptTokenizer:
    """A `Tokenizer` that tokenizes texts with what a prompt joins to them, in which no special
    token is spelled.
    """

    special = SpecialTokens(NO_TOKEN, NO_TOKEN, NO_TOKEN)

    def __init__(self, folder: str, joins: Joins) -> None:
        self._library = LibraryTokenizer(*read_library(folder), all_special=True)
        self._joins = joins
        self.vocab_size = self._library.vocab_size
        self.digest = digest([self._library.digest, joins])

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        return self._encode(texts, max_tokens, *self._joins.doc)

    def encode_queries(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        return self._encode(texts, max_tokens, *self._joins.query)

    def encode_instructions(self, texts: Sequence[str]) -> TokenColumn:
        return self._encode(texts, _WHOLE, *self._joins.instruction)

    def _encode(
        self, texts: Sequence[str], max_tokens: int, before: str, after: str
    ) -> TokenColumn:
        if self._joins.stripped:
            texts = [text.strip() for text in texts]
        joined = [f"{before}{text}{after}" for text in texts] if before or after else texts
        return self._library.encode(joined, max_tokens)


@dataclass(frozen=True)
class Prompt:
    """A prompt for inputs of some texts: its ids, and what is tokenized with the texts."""

    template: InputTemplate
    joins: Joins


@dataclass(frozen=True)
class PromptTemplate:
    """A template in Jinja, for the tokenizer of a local folder.

    Attributes:
        folder: the checkpoint's.
        reference: names the checkpoint in errors.
        text: the template; None for the tokenizer's own.
        form: `structured` or `flat`: whether it gets each text in a list of parts; None where only
            its text can tell.
        end: what the prompt ends with, even where the template leaves it out.
    """

    folder: str
    reference: str
    text: str | None = None
    form: str | None = None
    end: str = ""

    def read(self, segments: int, instruction: str | None, default: str = "") -> Prompt:
        """The prompt for inputs of so many texts.

        Args:
            segments: how many texts.
            instruction: the user's; `OF_TOPICS` is a text of the input, before the query.
            default: the checkpoint's.

        Raises:
            PreflightError: the template cannot be rendered, lacks a text or changes it; or tokens
                cross its borders.
            ConfigError: the instruction spells a special token, which would end its part of the
                prompt.
        """
        names = _TEXTS_OF[segments]
        if instruction is not None:
            self._check_instruction(instruction, names)
        fixed = {_INSTRUCTION: instruction or default} if instruction or default else {}
        if instruction == OF_TOPICS:
            names, fixed = (_INSTRUCTION, *names), {}
        parts, stripped = self._parts(names, fixed)
        return self._cut(names, parts, stripped)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_with_transformers(self.folder, self.reference)

    @cached_property
    def _template(self) -> str:
        template: str = self.text or self._tokenizer.get_chat_template()
        if "strftime_now" in template:
            raise self._refusal("holds the date (strftime_now), so scores change with the day")
        return template

    def _render(self, texts: Mapping[str, str]) -> str:
        is_structured = self.form == "structured" or (
            self.form != "flat" and _STRUCTURED.search(self._template)
        )
        messages = [
            {
                "role": role,
                "content": [{"type": "text", "text": texts[name]}]
                if is_structured
                else texts[name],
            }
            for name, role in _ROLES.items()
            if name in texts
        ]
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages, chat_template=self._template, tokenize=False, **texts
            )
        # Jinja's errors, and errors of functions that a template calls.
        except Exception as error:
            problem = f"cannot be rendered: {type(error).__name__}: {error!s:.300}"
            raise self._refusal(problem) from error
        return rendered if rendered.endswith(self.end) else rendered + self.end

    def _refusal(self, problem: str) -> PreflightError:
        return PreflightError(
            f"the prompt of the checkpoint {self.reference} {problem}. It must hold the query, "
            "then each doc, once and unchanged, as a chat template with the roles `query` and "
            "`document` of sentence-transformers does (chat_template.jinja). A classifier that was "
            "trained on plain pairs needs none: take it out",
            kind="prompt",
        )

    def _check_instruction(self, instruction: str, names: Sequence[str]) -> None:
        marked = dict(zip((_INSTRUCTION, *names), _MARKS, strict=False))
        if _MARKS[0] not in self._render(marked):
            raise PreflightError(
                f"the checkpoint {self.reference} has no instruction in its input: leave out "
                "`instruction`"
            )
        added = self._tokenizer.added_tokens_decoder.values()
        special = (token.content for token in added if token.special)
        spelled = next((token for token in special if token in instruction), None)
        if spelled is not None:
            raise ConfigError(
                f"the instruction {instruction!r:.200} spells the special token {spelled!r}: take "
                "it out"
            )

    def _parts(self, names: Sequence[str], fixed: Mapping[str, str]) -> tuple[list[str], bool]:
        """The fixed text around texts, and whether texts are stripped."""
        rest, parts = self._render({**fixed, **dict(zip(names, _MARKS, strict=False))}), []
        for mark in _MARKS[: len(names)]:
            part, _, rest = rest.partition(mark)
            parts.append(part)
        parts.append(rest)
        rendered = [self._render({**fixed, **dict.fromkeys(names, text)}) for text in _CHANGED]
        for stripped in (False, True):
            texts = [text.strip() if stripped else text for text in _CHANGED]
            if rendered == [text.join(parts) for text in texts]:
                return parts, stripped
        raise self._refusal("lacks a text or changes it")

    def _cut(self, names: Sequence[str], parts: Sequence[str], stripped: bool) -> Prompt:
        """Moves what a token could join to a text from the fixed text to the text."""
        encode = _encoder(self.folder)
        for texts in (_SPACED, _EDGES):
            encoded = encode(text.join(parts) for text in texts)
            borders = list(_borders(parts, texts, encoded, encode))
            before = [part[last:] for part, (_, last) in zip(parts, borders, strict=True)]
            after = [part[:first] for part, (first, _) in zip(parts, borders, strict=True)]
            joins = dict(zip(names, zip(before, after[1:], strict=False), strict=True))
            of_docs, of_instruction = joins[names[-1]], joins.get(_INSTRUCTION, ("", ""))
            template_joins = Joins(joins[_QUERY], of_docs, of_instruction, stripped)
            cut = (part[slice(*border)] for part, border in zip(parts, borders, strict=True))
            start, *ends = map(tuple, encode(cut))
            # The batches have no padding, so its id does not matter.
            template = InputTemplate(start, tuple(ends), (0,) * len(ends), 0)
            if (
                _assembled(template, PromptTokenizer(self.folder, template_joins), names, texts)
                == encoded
            ):
                return Prompt(template, template_joins)
        raise self._refusal("has no border between a text and what is beside it in all tokens")


def _borders(
    parts: Sequence[str],
    texts: Sequence[str],
    encoded: Sequence[list[int]],
    encode: Callable[[Iterable[str]], list[list[int]]],
) -> Iterator[tuple[int, int]]:
    """The places where the fixed text of each part begins and ends: no token crosses them."""

    def is_safe(number: int, place: int) -> bool:
        left, right = [*parts[:number], parts[number][:place]], parts[number][place:]
        lefts = encode(text.join(left) for text in texts)
        rights = encode(text.join([right, *parts[number + 1 :]]) for text in texts)
        return [one + two for one, two in zip(lefts, rights, strict=True)] == encoded

    for number, part in enumerate(parts):
        near = range(min(len(part), _NEAR) + 1)
        first, last = 0, len(part)
        if number > 0:
            first = next((place for place in near if is_safe(number, place)), 0)
        if number < len(parts) - 1:
            backwards = (len(part) - place for place in near)
            last = next((place for place in backwards if is_safe(number, place)), last)
        yield first, max(first, last)


def _encoder(folder: str) -> Callable[[Iterable[str]], list[list[int]]]:
    library = read_library(folder)[1]
    library.no_truncation()
    library.no_padding()
    return lambda texts: [
        encoding.ids
        for encoding in library.encode_batch_fast(list(texts), add_special_tokens=False)
    ]


def _assembled(
    template: InputTemplate,
    tokenizer: PromptTokenizer,
    names: Sequence[str],
    texts: Sequence[str],
) -> list[list[int]]:
    """The ids of inputs, each of one text in all places."""
    docs = tokenizer.encode(texts, _WHOLE)
    of_name = {
        _QUERY: tokenizer.encode_queries(texts, _WHOLE),
        _INSTRUCTION: tokenizer.encode_instructions(texts),
    }
    columns = [of_name.get(name, docs).ids.to_pylist() for name in names]
    return [
        [
            *template.start,
            *chain.from_iterable((*ids, *end) for ids, end in zip(row, template.ends, strict=True)),
        ]
        for row in zip(*columns, strict=True)
    ]

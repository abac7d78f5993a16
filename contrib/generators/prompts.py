"""The prompts of language models: fixed text around the texts of an input."""

from collections.abc import Sequence
from dataclasses import dataclass

from beamrank.config.stages import OF_TOPICS
from beamrank.errors import ConfigError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.documents import digest
from models.tokenizers.base import TokenColumn
from models.tokenizers.library import LibraryTokenizer, read_library

# What stands directly before and after an instruction, and the most tokens that are kept of one.
_INSTRUCTED, _WHOLE = (" ", "\n"), 1 << 20


@dataclass(frozen=True)
class Prompt:
    """Fixed text around the texts of an input.

    Attributes:
        parts: the text before the first text, between two, and after the last: one more than an
            input has texts. A special token that it spells is one.
        query: what stands directly before and after the query and is tokenized with it, such as a
            space.
        doc: the same for a doc.
        instruction: what stands before an instruction, both in place of `OF_TOPICS` in the first
            part; "" if none is read.
        card: the instruction of the model's card; "" for none.
    """

    parts: tuple[str, ...]
    query: tuple[str, str] = ("", "")
    doc: tuple[str, str] = ("", "")
    instruction: str = ""
    card: str = ""

    def template(self, folder: str, instruction: str | None = None) -> InputTemplate:
        """The ids of the parts, by the tokenizer of a local folder; an instruction replaces that of
        the card.

        That of each topic, `OF_TOPICS`, is a text of the input, before the query.

        Raises:
            ConfigError: the instruction spells a special token, which would end its part of the
                prompt.
        """
        library = read_library(folder)[1]
        library.no_truncation()
        library.no_padding()
        added = library.get_added_tokens_decoder().values()
        spelled = next(
            (
                token.content
                for token in added
                if token.special and token.content in (instruction or "")
            ),
            None,
        )
        if spelled is not None:
            raise ConfigError(
                f"the instruction {instruction!r:.200} spells the special token {spelled!r}: take "
                "it out"
            )
        before, _, after = self.parts[0].partition(OF_TOPICS)
        lead, text = [before + after], instruction or self.card
        if instruction == OF_TOPICS:
            lead = [before + self.instruction, after]
        elif text:
            lead = [f"{before}{self.instruction}{_INSTRUCTED[0]}{text}{_INSTRUCTED[1]}{after}"]
        parts = *lead, *self.parts[1:]
        start, *ends = (tuple(library.encode(part, add_special_tokens=False).ids) for part in parts)
        # The batches have no padding, so its id does not matter.
        return InputTemplate(start, tuple(ends), (0,) * len(ends), 0)


class PromptTokenizer:
    """A `Tokenizer` that tokenizes texts with what a prompt joins to them, in which no special
    token is spelled.
    """

    special = SpecialTokens(NO_TOKEN, NO_TOKEN, NO_TOKEN)

    def __init__(self, folder: str, prompt: Prompt) -> None:
        self._library = LibraryTokenizer(*read_library(folder), all_special=True)
        self._prompt = prompt
        self.vocab_size = self._library.vocab_size
        self.digest = digest([self._library.digest, prompt.query, prompt.doc])

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        return self._encode(texts, max_tokens, *self._prompt.doc)

    def encode_queries(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        return self._encode(texts, max_tokens, *self._prompt.query)

    def encode_instructions(self, texts: Sequence[str]) -> TokenColumn:
        return self._encode(texts, _WHOLE, *_INSTRUCTED)

    def _encode(
        self, texts: Sequence[str], max_tokens: int, before: str, after: str
    ) -> TokenColumn:
        joined = [f"{before}{text}{after}" for text in texts] if before or after else texts
        return self._library.encode(joined, max_tokens)


T5 = {
    SEGMENTS["mono"]: Prompt(("Query:", "Document:", "Relevant:</s>")),
    SEGMENTS["duo"]: Prompt(("Query:", "Document0:", "Document1:", "Relevant:</s>")),
}
QWEN3 = {
    SEGMENTS["mono"]: Prompt(
        (
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the "
            "Query and the Instruct "
            'provided. Note that the answer can only be "yes" or '
            '"no".<|im_end|>\n<|im_start|>user\n'
            f"{OF_TOPICS}<Query>:",
            "<Document>:",
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        query=(" ", "\n"),
        doc=(" ", ""),
        instruction="<Instruct>:",
        card="Given a web search query, retrieve relevant passages that answer the query",
    )
}
MXBAI = {
    SEGMENTS["mono"]: Prompt(
        (
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            f"assistant.<|im_end|>\n<|im_start|>user\n{OF_TOPICS}query:",
            "\ndocument:",
            "\nYou are a search relevance expert who evaluates how well documents match search "
            "queries. For each query-document pair, carefully analyze the semantic relationship "
            "between them, then provide your binary relevance judgment (0 for not relevant, 1 for "
            "relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
        ),
        query=(" ", ""),
        doc=(" ", ""),
        instruction="instruction:",
    )
}

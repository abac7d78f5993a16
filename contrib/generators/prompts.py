"""The prompts of language models: fixed text around the texts of an input."""

from collections.abc import Sequence
from dataclasses import dataclass

from beamrank.errors import ConfigError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.documents import digest
from models.tokenizers.base import TokenColumn
from models.tokenizers.library import LibraryTokenizer, read_library

INSTRUCTION = "{instruction}"


@dataclass(frozen=True)
class Prompt:
    """Fixed text around the texts of an input.

    Attributes:
        parts: the text before the first text, between two, and after the last: one more than an input has texts. A
            special token that it spells is one.
        query: what stands directly before and after the query and is tokenized with it, such as a space.
        doc: the same for a doc.
        instruction: the form of an instruction, which stands for `INSTRUCTION` in the first part; "" if none is read.
        card: the instruction of the model's card; "" for none.
    """

    parts: tuple[str, ...]
    query: tuple[str, str] = ("", "")
    doc: tuple[str, str] = ("", "")
    instruction: str = ""
    card: str = ""

    def template(self, folder: str, instruction: str | None = None) -> InputTemplate:
        """The ids of the parts, by the tokenizer of a local folder; an instruction replaces that of the card.

        Raises:
            ConfigError: the instruction spells a special token, which would end its part of the prompt.
        """
        library = read_library(folder)[1]
        library.no_truncation()
        library.no_padding()
        added = library.get_added_tokens_decoder().values()
        spelled = next(
            (token.content for token in added if token.special and token.content in (instruction or "")), None
        )
        if spelled is not None:
            raise ConfigError(f"the instruction {instruction!r:.200} spells the special token {spelled!r}: take it out")
        text = instruction or self.card
        lead, *rest = self.parts
        parts = [lead.replace(INSTRUCTION, self.instruction.format(text) if text else ""), *rest]
        start, *ends = (tuple(library.encode(part, add_special_tokens=False).ids) for part in parts)
        # The batches have no padding, so its id does not matter.
        return InputTemplate(start, tuple(ends), (0,) * len(ends), 0)


class PromptTokenizer:
    """A `Tokenizer` that tokenizes texts with what a prompt joins to them, in which no special token is spelled."""

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

    def _encode(self, texts: Sequence[str], max_tokens: int, before: str, after: str) -> TokenColumn:
        joined = [f"{before}{text}{after}" for text in texts] if before or after else texts
        return self._library.encode(joined, max_tokens)


T5 = {
    SEGMENTS["mono"]: Prompt(("Query:", "Document:", "Relevant:</s>")),
    SEGMENTS["duo"]: Prompt(("Query:", "Document0:", "Document1:", "Relevant:</s>")),
}
QWEN3 = {
    SEGMENTS["mono"]: Prompt(
        (
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
            'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
            f"{INSTRUCTION}<Query>:",
            "<Document>:",
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        query=(" ", "\n"),
        doc=(" ", ""),
        instruction="<Instruct>: {}\n",
        card="Given a web search query, retrieve relevant passages that answer the query",
    )
}
MXBAI = {
    SEGMENTS["mono"]: Prompt(
        (
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\n{INSTRUCTION}query:",
            "\ndocument:",
            "\nYou are a search relevance expert who evaluates how well documents match search queries. For each "
            "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
            "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
        ),
        query=(" ", ""),
        doc=(" ", ""),
        instruction="instruction: {}\n",
    )
}

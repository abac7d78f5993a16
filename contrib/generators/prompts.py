"""The prompts of language models: fixed text around the texts of an input."""

from collections.abc import Sequence
from dataclasses import dataclass

from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.documents import digest
from models.tokenizers.base import TokenColumn
from models.tokenizers.library import LibraryTokenizer, read_library


@dataclass(frozen=True)
class Prompt:
    """Fixed text around the texts of an input.

    Attributes:
        parts: the text before the first text, between two, and after the last: one more than an input has texts. A
            special token that it spells is one.
        query: what stands directly before and after the query and is tokenized with it, such as a space.
        doc: the same for a doc.
    """

    parts: tuple[str, ...]
    query: tuple[str, str] = ("", "")
    doc: tuple[str, str] = ("", "")

    def template(self, folder: str) -> InputTemplate:
        """The ids of the parts, by the tokenizer of a local folder."""
        library = read_library(folder)[1]
        library.no_truncation()
        library.no_padding()
        start, *ends = (tuple(library.encode(part, add_special_tokens=False).ids) for part in self.parts)
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
            'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: '
            "Given a web search query, retrieve relevant passages that answer the query\n<Query>:",
            "<Document>:",
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        query=(" ", "\n"),
        doc=(" ", ""),
    )
}
MXBAI = {
    SEGMENTS["mono"]: Prompt(
        (
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\nquery:",
            "\ndocument:",
            "\nYou are a search relevance expert who evaluates how well documents match search queries. For each "
            "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
            "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
        ),
        query=(" ", ""),
        doc=(" ", ""),
    )
}

"""Prompts of templates have the ids of the whole, whatever the tokenizer joins."""

from itertools import chain
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from models.tokenizers.prompts import PromptTemplate, PromptTokenizer
from tests.support.models.tokenizers import TEXTS, save_tokenizer
from tests.support.tiers import slow_but

_TEMPLATES = (
    "Query: {{ query }} Document: {{ doc }} Relevant:",
    "query: {{ query }}\ndocument: {{ doc }}\nRelevance:",
    '"{{ query }}"\n\n[{{ doc }}]',
    "{{ query }}\t{{ doc }}",
)


def _ids(folder: str, template: PromptTemplate, query: str, doc: str) -> list[int]:
    prompt = template.read(2, None)
    tokenizer = PromptTokenizer(folder, prompt.joins)
    columns = (tokenizer.encode_queries([query], 512), tokenizer.encode([doc], 512))
    texts = [column.ids.to_pylist()[0] for column in columns]
    pairs = zip(texts, prompt.template.ends, strict=True)
    return [*prompt.template.start, *chain.from_iterable((*ids, *end) for ids, end in pairs)]


@pytest.mark.parametrize("family", ["bert", "qwen2", "t5", "xlm-roberta", "roberta"])
@pytest.mark.parametrize("text", slow_but(2, _TEMPLATES))
def test_pieces_of_a_prompt_have_the_ids_of_the_whole(family, text, tmp_path):
    folder = save_tokenizer(family, tmp_path, [*TEXTS, *_TEMPLATES, "What?\nWho.\n(it)\n" * 9])
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    template = PromptTemplate(folder, "here", text)
    for query, doc in zip(["what is it?", "(1)", "北京。", "a"], TEXTS, strict=False):
        whole = text.replace("{{ query }}", query).replace("{{ doc }}", doc.strip())
        wanted = library.encode(whole, add_special_tokens=False).ids
        assert _ids(folder, template, query, doc.strip()) == wanted


def test_line_break_after_a_text_is_tokenized_with_it(tmp_path):
    save_tokenizer("qwen2", tmp_path, [*TEXTS, "What is it?\n" * 99])
    tokens = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert tokens.tokenize("it?\n")[-1] == "?Ċ"
    template = PromptTemplate(str(tmp_path), "here", _TEMPLATES[1])
    assert template.read(2, None).joins.query == (" ", "\n")


def test_date_of_a_template_that_is_not_rendered_is_not_looked_at(tmp_path: Path):
    folder = save_tokenizer("bert", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ strftime_now('%d') }}")
    assert PromptTemplate(folder, "here", _TEMPLATES[0]).read(2, None).joins.stripped is False

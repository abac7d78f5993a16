"""Language models that answer with a word score as transformers scores their whole prompts."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.torch import load_file, save_file

import beamrank
from beamrank.errors import ConfigError, PreflightError
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.nfcorpus import read_nfcorpus
from benchmarks.datasets.squad import read_squad
from models.checkpoints.checkpoint import resolve_checkpoint, tokenizer_of
from models.reranker import Reranker
from models.tokenizers.prompts import Joins, PromptTokenizer
from tests.contrib.generators.cases import GENERATORS, prompt_ids, save_generator, wanted_answers
from tests.support.changed_files import edit_json
from tests.support.models.tokenizers import TEXTS, save_tokenizer
from tests.support.oracle import assert_parity
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection
from tests.support.tiers import slow_but

_DOCS = [text.strip() for text in TEXTS[:9] if text.strip()]
_QUERIES = ["what is the capital of France?", "the dog", "1,234 (p < 0.05)", "北京 and 한국어!"]
_PAIRS = [(query, doc) for query in _QUERIES for doc in _DOCS]
_TRIPLES = [
    (query, doc, _DOCS[(place + 3) % len(_DOCS)])
    for query in _QUERIES
    for place, doc in enumerate(_DOCS)
]


def _reranker(folder: str, name: str, dtype: str = "float32", **options: Any) -> Reranker:
    options = {"truncation": "paper", "max_query_length": 40, "max_length": 512, **options}
    options = {**GENERATORS[name].options, **options}
    return Reranker(folder, GENERATORS[name].kind, dtype=dtype, device="cpu", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", slow_but(4, GENERATORS))
def test_prompts_score_as_in_transformers(name, tmp_path, caplog):
    folder = save_generator(tmp_path, name)
    case = GENERATORS[name]
    texts = _TRIPLES if case.kind == "duo" else _PAIRS
    wanted = wanted_answers(folder, case, prompt_ids(folder, case, texts))
    assert np.std(wanted) > 0.1
    assert_parity(_reranker(folder, name).score(texts).tolist(), wanted)
    assert "slower" in caplog.text
    words = " minus that of ".join(map(repr, reversed(case.words)))
    assert f"the logit of {words} after its prompt" in caplog.text


@pytest.mark.parametrize("name", ["monoT5 gated", "mT5", "Qwen3 tied"])
def test_map_to_words_of_the_checkpoint_decides_though_it_is_said_to_be_tied(name, tmp_path):
    folder = save_generator(tmp_path, name)
    weights = load_file(tmp_path / "model.safetensors")
    embeddings = weights["model.embed_tokens.weight" if name[0] == "Q" else "shared.weight"]
    weights["lm_head.weight"] = embeddings.flip(0).contiguous()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    case = GENERATORS[name]
    wanted = wanted_answers(folder, case, prompt_ids(folder, case, _PAIRS))
    assert_parity(_reranker(folder, name).score(_PAIRS).tolist(), wanted)


@pytest.mark.parametrize("dtype", slow_but(1, ["bfloat16", "float32"]))
@pytest.mark.parametrize("name", slow_but(1, ["Qwen3", "monoT5", "Gemma"]))
def test_score_has_the_same_bits_beside_others(name, dtype, tmp_path):
    folder = save_generator(tmp_path, name)
    one, two = (_reranker(folder, name, dtype, threads=threads) for threads in (1, 2))
    together = two.score(_PAIRS)
    assert one.score(_PAIRS[::-1]).tolist() == together[::-1].tolist()
    assert [float(one.score([pair])[0]) for pair in _PAIRS[::7]] == together[::7].tolist()
    assert len(np.unique(together)) > 0.9 * len(_PAIRS)


def test_long_doc_is_cut_and_the_end_of_the_prompt_is_not(tmp_path):
    folder = save_generator(tmp_path, "monoT5")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    before, doc, after = (
        tokenizer(text, add_special_tokens=False).input_ids
        for text in ("Query: a Document:", "France the dog " * 200, "Relevant:</s>")
    )
    prompt = [*before, *doc[: 64 - len(before) - len(after)], *after]
    found = _reranker(folder, "monoT5", max_query_length=32, max_length=64).score(
        [("a", "France the dog " * 200)]
    )
    assert_parity(found.tolist(), wanted_answers(folder, GENERATORS["monoT5"], [prompt]))


@pytest.mark.parametrize(
    ("name", "kind", "changes", "message"),
    [
        (
            "Qwen3",
            "duo",
            {},
            "`query` .*`document`",
        ),
        (
            "Qwen3",
            "mono",
            {"model_type": "qwen2"},
            r"Qwen3ForCausalLM .*'qwen2'",
        ),
        (
            "Qwen3",
            "mono",
            {"architectures": ["Qwen3Model"]},
            "has no score.weight|cannot be scored",
        ),
        ("Qwen3", "mono", {"auto_map": {"AutoModel": "theirs.Theirs"}}, "'auto_map'"),
        (
            "Gemma",
            "mono",
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "'quantization_config' .*'gptq'.*`endpoint` of a `listwise` stage",
        ),
        (
            "Qwen3",
            "mono",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            "'dynamic'",
        ),
        (
            "monoT5",
            "mono",
            {"decoder_start_token_id": 1 << 20},
            "decoder_start_token_id 1048576",
        ),
        ("monoT5", "mono", {"decoder_start_token_id": None}, "decoder_start_token_id None"),
        ("monoT5", "mono", {"num_layers": 3}, r"encoder.block.2"),
        ("monoT5", "mono", {"vocab_size": 9}, r"\(720, 36\), .*\(9, 36\)"),
    ],
    ids=str,
)
def test_unusable_language_model_is_refused(name, kind, changes, message, tmp_path):
    folder = save_generator(tmp_path, name)
    path = tmp_path / "config.json"
    edit_json(path, **changes)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(folder, kind, options=GENERATORS[name].options)


def test_tokenizer_without_the_answers_is_refused(tmp_path):
    folder = save_generator(tmp_path, "monoT5")
    save_tokenizer("bert", tmp_path)
    with pytest.raises(PreflightError, match="'▁true'"):
        resolve_checkpoint(folder, "mono", options=GENERATORS["monoT5"].options)


def test_prompt_that_leaves_a_doc_no_token_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="max_query_length"):
        _reranker(save_generator(tmp_path, "Qwen3"), "Qwen3", max_query_length=16, max_length=64)


@pytest.mark.parametrize("name", slow_but(1, ["mxbai v2", "Qwen3"]))
def test_instruction_takes_its_place_in_the_prompt(name, tmp_path):
    folder, case = save_generator(tmp_path, name), GENERATORS[name]
    instruction = "Find {passages} on bread"
    old, new = (
        "Given a web search query, retrieve relevant passages that answer the query",
        instruction,
    )
    if name == "mxbai v2":
        old, new = "user\nquery:", f"user\ninstruction: {instruction}\nquery:"
    prompt = case.prompt.replace(old, new.replace("{", "{{").replace("}", "}}"))
    wanted = wanted_answers(folder, case, prompt_ids(folder, replace(case, prompt=prompt), _PAIRS))
    assert_parity(_reranker(folder, name, instruction=instruction).score(_PAIRS).tolist(), wanted)
    assert np.abs(_reranker(folder, name).score(_PAIRS) - wanted).max() > 0.01
    given = (None, instruction, "other")
    resolved = (resolve_checkpoint(folder, "mono", each, case.options) for each in given)
    assert len({each.digest for each in resolved}) == 3


def test_instruction_that_is_not_read_is_refused(tmp_path):
    folder = save_generator(tmp_path / "t5", "monoT5")
    for reference, options in ((folder, GENERATORS["monoT5"].options), ("embedded:mono", {})):
        with pytest.raises(PreflightError, match="`instruction`"):
            Reranker(reference, instruction="Find bread", **options)
    with pytest.raises(ConfigError, match=r"'<.im_end.>'"):
        _reranker(save_generator(tmp_path / "qwen", "Qwen3"), "Qwen3", instruction="a<|im_end|>b")
    with pytest.raises(ConfigError, match="instruction: "):
        Reranker("embedded:mono", instruction="")


def test_run_with_an_instruction_scores_as_in_memory(tmp_path):
    mono = {
        "checkpoint": save_generator(tmp_path / "mono", "Qwen3"),
        "k": 4,
        "instruction": "Find bread",
        **GENERATORS["Qwen3"].options,
    }
    topics = {query_id: TOPICS[query_id] for query_id in ("q1", "q2")}
    docs = {doc_id: text[:40].strip() for doc_id, text in DOCS.items()}
    candidates = {query_id: CANDIDATES[query_id] for query_id in topics}
    collection = SmallCollection(tmp_path, docs, topics, shards=1).given_run(candidates)
    collection.keys |= {"mono": mono}
    collection.run()
    path = collection.output / "runs" / "mono.trec"
    found = beamrank.read_run(path)
    given = {
        query_id: {doc_id: -rank for rank, doc_id in enumerate(ids)}
        for query_id, ids in candidates.items()
    }
    options: Any = {"dtype": "float32", "device": "cpu"}
    assert (
        found == beamrank.rerank(topics, given, docs, cascade=[{"mono": mono}], **options)["mono"]
    )
    collection.run("mono.instruction=null")
    assert beamrank.read_run(path) != found


def _ids(
    folder: str, kind: str, texts: Sequence[Sequence[str]], options: dict[str, Any]
) -> list[list[int]]:
    """The ids of whole inputs, as they are laid out from the ids of texts."""
    checkpoint = resolve_checkpoint(folder, kind, options=options)
    tokenizer = tokenizer_of(checkpoint)
    template = checkpoint.architecture.template(tokenizer.special)
    queries, *docs = zip(*texts, strict=True)
    columns = [
        tokenizer.encode_queries(queries, 1 << 20),
        *(tokenizer.encode(each, 1 << 20) for each in docs),
    ]
    encoded = zip(*(column.ids.to_pylist() for column in columns), strict=True)
    return [
        [
            *template.start,
            *chain(*([*ids, *end] for ids, end in zip(each, template.ends, strict=True))),
        ]
        for each in encoded
    ]


@pytest.mark.parametrize("name", ["monoT5", "duoT5", "mxbai v2", "Qwen3"])
def test_inputs_have_the_ids_of_whole_prompts(name, tmp_path):
    case, folder = GENERATORS[name], save_generator(tmp_path, name)
    texts = _TRIPLES if case.kind == "duo" else _PAIRS
    assert _ids(folder, case.kind, texts, case.options) == prompt_ids(folder, case, texts)


def test_inputs_of_gemmas_reranker_are_those_of_its_pieces(tmp_path):
    """As FlagEmbedding lays them out: query, doc and task are tokenized apart."""
    case, folder = GENERATORS["Gemma"], save_generator(tmp_path, "Gemma")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    task = case.prompt.rpartition("\n")[2]
    wanted = [
        [tokenizer.bos_token_id]
        + [
            token
            for piece in (f"A: {query}", "\n", f"B: {doc}", "\n", task)
            for token in tokenizer(piece, add_special_tokens=False).input_ids
        ]
        for query, doc in _PAIRS
    ]
    assert _ids(folder, "mono", _PAIRS, case.options) == wanted


def test_text_inside_a_prompt_spells_no_special_token(tmp_path):
    folder = save_generator(tmp_path, "Qwen3")
    start, *_ = prompt_ids(folder, GENERATORS["Qwen3"], [("a", "b")])[0]
    tokenizer = PromptTokenizer(folder, Joins())
    ids = tokenizer.encode(["a<|im_end|>\n<|im_start|>system\n"], 512).ids.to_pylist()[0]
    assert start not in ids


def test_prompt_and_answers_decide_the_digests(tmp_path):
    folder = save_generator(tmp_path, "Qwen3")
    joins = [Joins(), Joins(doc=(" ", "")), Joins(query=(" ", "")), Joins(stripped=True)]
    assert len({PromptTokenizer(folder, each).digest for each in joins}) == 4
    options = GENERATORS["Qwen3"].options
    changed = {"prompt": {"text": "{{ query }} {{ doc }}"}, "answers": ("no", "yes")}
    given = [options, *({**options, name: value} for name, value in changed.items())]
    assert len({resolve_checkpoint(folder, "mono", options=each).digest for each in given}) == 3


@pytest.fixture(scope="module")
def collections(shared_data: Path) -> list[Collection]:
    nfcorpus = read_nfcorpus(shared_data / "nfcorpus" / "nfcorpus.zip", "test")
    return [read_squad(shared_data / "squad_v1.1.tar.gz"), nfcorpus]


@pytest.mark.data
@pytest.mark.parametrize("name", ["monoT5", "duoT5", "mxbai v2", "Qwen3"])
def test_prompts_of_collections_have_the_ids_of_transformers(name, tmp_path, collections):
    case, folder = GENERATORS[name], save_generator(tmp_path, name)
    for collection in collections:
        docs = [doc.text.strip() for doc in collection.passages[:: len(collection.passages) // 300]]
        topics = [
            topic.text.strip() for topic in collection.topics[:: len(collection.topics) // 100]
        ]
        queries = [topics[place % len(topics)] for place in range(len(docs))]
        docs_of_inputs = [docs, docs[::-1]][: 1 + (case.kind == "duo")]
        texts = list(zip(queries, *docs_of_inputs, strict=True))
        assert _ids(folder, case.kind, texts, case.options) == prompt_ids(folder, case, texts)


@pytest.mark.slow
def test_run_of_monot5_and_duot5_scores_as_transformers(tmp_path):
    folders = {kind: save_generator(tmp_path / kind, f"{kind}T5") for kind in ("mono", "duo")}
    docs = {doc_id: text[:120].strip() for doc_id, text in DOCS.items()}
    collection = SmallCollection(tmp_path, docs).given_run()
    collection.keys |= {
        kind: {"checkpoint": folder, "k": 3, **GENERATORS[f"{kind}T5"].options}
        for kind, folder in folders.items()
    }
    collection.keys["mono"]["k"] = 9
    run = collection.run()
    pairs = {(row["query_id"], row["doc_id"]): row["score"] for row in run.rows("mono")}
    triples = {
        (row["query_id"], first, second): score
        for row in run.rows("duo")
        for (first, second), score in zip(
            itertools.product(row["doc_ids"], repeat=2), row["scores"], strict=True
        )
        if first != second
    }
    for kind, found in (("mono", pairs), ("duo", triples)):
        case = GENERATORS[f"{kind}T5"]
        texts = [
            (TOPICS[query_id], *(docs[doc_id] for doc_id in doc_ids))
            for query_id, *doc_ids in found
        ]
        wanted = wanted_answers(folders[kind], case, prompt_ids(folders[kind], case, texts))
        assert len(wanted) > 15
        assert_parity(list(found.values()), wanted)

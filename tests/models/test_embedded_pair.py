import hashlib
from pathlib import Path

import pytest

from beamrank.demo.collection import demo_questions, stdlib_docs
from models.checkpoints.sources import locate
from models.reranker import Reranker

SHA256 = {
    "mono/model.safetensors": "1442416cf93ff3f6e2cd86736058398c89191d3d3ddade8b6bb8620f582aca45",
    "mono/config.json": "6e7c6c7b06a7a79941aa4a723f85b7d157965305a148be050abbd532c19c4ca0",
    "duo/model.safetensors": "6b477d5d4f1a4394df800278900b9292ede0d8e6543b5eccc8f138e0a41d4923",
    "duo/config.json": "ada1151d75e56f5cf90c2049dd2c58584976228fd68a4c7b285fe27b32015d22",
}


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_embedded_pair_has_the_released_bytes(kind):
    folder = Path(locate(f"embedded:{kind}")[0])
    for name in ("model.safetensors", "config.json"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == SHA256[f"{kind}/{name}"]
    texts = {doc.doc_id: doc.text for doc in stdlib_docs()}
    triples = [
        (question.text, texts[f"{question.answers[0]}:0"], other)
        for question, other in zip(demo_questions(), list(texts.values())[::1000], strict=False)
    ]
    assert len(triples) == 9
    score = Reranker(f"embedded:{kind}", kind, dtype="float32", max_length=96).score
    if kind == "duo":
        margins = score(triples) - score([(query, other, answer) for query, answer, other in triples])
    else:
        margins = score([each[:2] for each in triples]) - score([(query, other) for query, _, other in triples])
    assert int((margins > 0).sum()) >= 8

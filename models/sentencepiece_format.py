"""The description of SentencePiece's files that transformers reads them with."""

import importlib
import sys


def provide_sentencepiece_format() -> None:
    """Lets transformers read SentencePiece models with its own description of their format.

    It prefers sentencepiece's, which may need a newer protobuf than Beam allows.
    """
    name = "sentencepiece.sentencepiece_model_pb2"
    try:
        importlib.import_module(name)
    # protobuf's error for this is not an ImportError.
    except Exception:
        sys.modules[name] = importlib.import_module("transformers.utils.sentencepiece_model_pb2_new")

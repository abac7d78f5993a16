"""Tokenizers: text to token ids."""

"""Data sets by name: those of ir_datasets, pyserini's indexes and topics."""

"""Data sets by name: ir_datasets, pyserini's indexes and topics."""

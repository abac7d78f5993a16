"""Readers of the collections that benchmarks and experiments use: SQuAD, MedQuAD and NFCorpus."""

"""Short fine-tuning of small rerankers by distillation from a bi-encoder. Run it with `python -m models.training`."""

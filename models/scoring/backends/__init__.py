"""The programs that run a model's forward pass."""

"""The training loop: optimizer, losses, checkpoints of its state, processes."""

"""A first look at a GPU: what is right, what is fast, and what survives, in minutes."""

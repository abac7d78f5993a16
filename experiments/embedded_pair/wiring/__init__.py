"""The weights of a bi-encoder, rearranged into those of a cross-encoder."""

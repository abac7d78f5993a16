"""How the embedded pair was made, from three collections and a bi-encoder: `python -m experiments.embedded_pair`."""

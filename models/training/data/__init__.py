"""Training examples: collections, mined negatives, triples, encoded inputs."""

"""Training of rerankers: `beamrank train` (docs/guide/training.md), and the embedded pair. Needs torch, never Beam."""

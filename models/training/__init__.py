"""Training of rerankers: `beamrank train` (docs/guide/training.md). Needs torch, never Beam."""

"""The files in runs/: written, aggregated again, and verified."""

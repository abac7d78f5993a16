"""The stages of a run, one class a file (docs/internals/extending.md)."""

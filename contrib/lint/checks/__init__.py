"""The checks: a function each, registered in `contrib/lint/registry.py`."""

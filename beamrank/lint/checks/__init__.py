"""The checks: a function each, registered in `beamrank/lint/registry.py`."""

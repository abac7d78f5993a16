"""Changed inputs for every reader: `python -m benchmarks.fuzz`; tests/fuzz uses the same
targets.
"""

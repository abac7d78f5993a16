"""What `make bench` measures: beamrank beside its peers on the same machine, written to
benchmarks/results.
"""

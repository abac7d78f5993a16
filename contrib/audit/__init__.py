"""`beamrank audit`: random shards of a run, scored again."""

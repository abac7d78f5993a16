"""Jobs and the command line: the only place that builds a beam.Pipeline."""

"""A stage, a corpus format and a section of the report for beamrank."""

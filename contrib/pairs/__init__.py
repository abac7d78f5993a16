"""`beamrank score`: pairs and triples of texts in tables."""

"""`beamrank demo`: the cascade on an embedded collection."""

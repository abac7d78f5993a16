"""`beamrank card DIR`: the card of a finished run, as a hub of data sets shows it."""

"""`beamrank convert WHAT`: other formats to ours, and back."""

"""`beamrank lint`: checks of run files, one code each, and what `--fix` writes."""

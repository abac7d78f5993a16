"""The plan of a run, its cost, and the rest of an unfinished run."""

"""The plan of a configuration, its cost, and the rest of unfinished work."""

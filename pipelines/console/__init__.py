"""Output of the commands for people: progress, notes, tables."""

"""What commands show on standard error and on a terminal: progress, notes, tables."""

"""The corpus formats: a module reads one, or what some share."""

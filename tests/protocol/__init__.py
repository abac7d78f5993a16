"""What the commit protocol promises: a model, and the search of all that it may do."""

"""What `beamrank demo` searches: the standard library's docstrings, and questions with the objects that answer them."""

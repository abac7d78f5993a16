"""The parts of `make bench`, one file each."""

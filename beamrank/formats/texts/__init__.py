"""Formats of files that hold docs or topics."""

"""A report of a finished run: curves, tables and pictures from its stored scores, without a
model.
"""

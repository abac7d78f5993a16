"""The collection of `beamrank demo`: docstrings of Python 3.11's standard library, and questions
that they answer.
"""

"""The version of beamrank."""

__version__ = "0.1.0"

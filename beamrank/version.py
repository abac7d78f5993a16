"""The version of beamrank."""

__version__ = "0.3.0"

"""The version of beamrank."""

__version__ = "0.2.0"

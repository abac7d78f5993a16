"""beamrank: distributed batch re-ranking on Apache Beam."""

__version__ = "0.1.0"

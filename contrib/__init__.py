"""Plugins: what beamrank can do beyond the cascade. The core finds them by their entry points."""

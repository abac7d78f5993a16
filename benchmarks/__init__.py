"""What beamrank costs, measured against named peers: `make bench`."""

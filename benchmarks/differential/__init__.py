"""What beamrank computes, beside other libraries and plain loops, on random inputs."""

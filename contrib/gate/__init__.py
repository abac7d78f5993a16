"""`beamrank report --fail-if`: conditions on what changed, for jobs that nobody watches."""

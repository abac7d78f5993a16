"""`beamrank report --baseline DIR`, what changed since an earlier run, and `--fail-if`."""

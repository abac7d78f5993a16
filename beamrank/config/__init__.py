"""The configuration of a run: its options, and YAML files with overrides."""

"""The tables that pass between the stages."""

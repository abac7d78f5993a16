"""The study of passage length (Mass et al. 2019)."""

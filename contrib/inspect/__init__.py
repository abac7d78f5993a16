"""`beamrank inspect DIR`: topics, candidates, rank changes and attempts in the terminal."""

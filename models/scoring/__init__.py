"""The engine that scores, and the two stages that use it."""

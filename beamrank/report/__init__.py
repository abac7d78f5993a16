"""What a finished run did: curves, tables and pictures from its stored scores, without a model."""

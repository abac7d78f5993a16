"""The arithmetic of the papers: model inputs, segments, aggregations, rankings."""

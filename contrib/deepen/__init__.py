"""Depth under a budget: all topics are scored to a first depth, and topics whose scores promise
most deeper.
"""

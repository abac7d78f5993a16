"""Depth under a budget: all topics are scored to a first depth, and those whose scores promise most
deeper.
"""

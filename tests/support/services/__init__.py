"""Services that tests need: object stores, Dataflow, clusters, and the environments of other
programs.
"""

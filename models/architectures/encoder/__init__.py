"""The encoder that all families share: its sizes, its torch module, and how a checkpoint of a
family is read.
"""

"""A campaign of random faults: whole runs that are disturbed, resumed, and compared with
undisturbed ones.
"""

"""The operations that models are composed of, over packed rows; their bits do not depend on a row's
neighbours.
"""

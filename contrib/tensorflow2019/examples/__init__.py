"""Files of examples, as the code of 2019 trains and evaluates on, from MS MARCO's files and from
runs.
"""

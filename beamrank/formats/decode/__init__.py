"""How files hold rows: delimited lines, JSON, tables, TREC's SGML. No decoder knows what an input
is.
"""

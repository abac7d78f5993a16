"""The studies of the papers and the recipe of the embedded pair. Not part of the installed
package.
"""

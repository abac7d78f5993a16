"""A run after earlier ones, of other files and settings, against the same run into an empty
folder.
"""

from tests.support.changed_runs import check

__all__ = ["check"]

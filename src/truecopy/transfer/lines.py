"""Lines that a task keeps in its target (`truecopy.engines.lines`)."""

from truecopy.engines.lines import Keeps, Lines, transaction

__all__ = ["Keeps", "Lines", "transaction"]

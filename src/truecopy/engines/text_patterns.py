"""What a text must look like to be read as another type: the regular expressions of `model.text`.

For engines that read text by `--cast` inside the database. Written so that PostgreSQL, RE2 (DuckDB)
and Python understand them alike; all must match the whole text.
"""

from __future__ import annotations

INTEGER = "[+-]?[0-9]+"
NUMBER = "[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
"""A decimal or a float. Larger exponents are left unread: no column holds such numbers."""

LONGEST_NUMBER = 100_000
"""In bytes: what PostgreSQL's numeric surely holds."""

NOT_A_NUMBER = "[+-]?nan"
INFINITY = "[+]?inf(?:inity)?"
MINUS_INFINITY = "-inf(?:inity)?"
"""These three in lower case."""

DATE = "[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_OFFSET = "(Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?"
MIDNIGHT = f"({DATE})(?:[ T]00:00(?::00(?:[.]0+)?)?)? ?{_OFFSET}"
"""A day that is kept as a timestamp; group 1 is the day."""

TIME = "(-?)([0-9]{1,4}):([0-9]{2})(?::([0-9]{2})(?:[.]([0-9]{1,6})0*)?)?"
"""Groups: sign, hours, minutes, seconds, fraction."""

_CLOCK = "([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.]([0-9]{1,6})0*)?)?"
TIMESTAMP = f"({DATE})(?:[ T]{_CLOCK})? ?{_OFFSET}"
"""Groups: day, hours, minutes, seconds, fraction, offset."""

_ANY_YEAR = "[0-9]{4}"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_LONG_MONTH = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTH = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
REAL_INSTANT = (
    f"(?:{_ANY_YEAR}-(?:{_LONG_MONTH}|{_SHORT_MONTH}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
    "(?:[ T](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]+)?)?)?"
    " ?[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
)
"""A timestamp with an offset that exists in the calendar, except that the year 0000 fits too."""

"""Who has the name of a table that went: what a log of statements tells of it, ahead of where a task stands."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.stream.log import ChangeLog, KeepsStatements


@dataclass(frozen=True)
class Successor:
    """The table that got the name of one that was dropped or renamed.

    Attributes:
        at: Where in the log it got the name.
        is_made: It was made by that name, so that the log has every row of it under it.
    """

    at: str
    is_made: bool = False


def find_successor(log: ChangeLog, table: str, at: str) -> Successor | None:
    """Who got a name first after a position at which it became free; None where the log does not keep statements.

    It has to be known at the position itself. A table that is made anew begins empty there, and so must the
    target's; one that is renamed brings rows, which the log has under another name, if at all. Whoever empties the
    target first and meets the renaming afterwards has nothing left that "the same rows" could be said of. So the log
    is read ahead, from the position to its end, for statements alone: that costs a reading of what the task has still
    to come through, and tables are seldom dropped.

    A name that is taken by no statement of the log (`sql_log_bin = 0`, one that is not understood) is taken by a table
    of which nothing is known: that is not one that was made.
    """
    if not isinstance(log, KeepsStatements):
        return None
    for statement in log.statements(log.seek(at), log.current()):
        if table in statement.made:
            return Successor(statement.position, is_made=True)
        if table in statement.renamed.values():
            return Successor(statement.position)
    return Successor(at)

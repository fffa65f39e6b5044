"""Errors that a user can act on: one line that says what, where and what to do, and an exit code."""

from __future__ import annotations


class TruecopyError(Exception):
    """Something the user can act on. Its text is the one line that is shown."""

    exit_code = 3

    def __str__(self) -> str:
        return " ".join(super().__str__().split())

    def told(self) -> None:
        """To be called when its text was shown: what was kept so that it is not lost before may be forgotten."""


class UsageError(TruecopyError):
    """Wrong usage or configuration: the same command can never succeed."""

    exit_code = 2


class CannotFinish(TruecopyError):
    """The work stopped before its end: connection lost, no permission, interrupted."""

    exit_code = 3


class Refused(CannotFinish):
    """A server does not take a statement, for what is defined there or for its rows; it may take another one."""


class Denied(CannotFinish):
    """The user has no right to do it."""


class KeyTaken(CannotFinish):
    """Another row of the target has the key of one that is to be written there; it may go yet."""


class IncomparableTypes(UsageError):
    """Two columns whose values cannot be compared faithfully."""

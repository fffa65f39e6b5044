"""The way back of one cutover: made ready before writers notice anything, begun while they wait, or forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, cast

from truecopy.engines import pool
from truecopy.engines.protocols import Introspects
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.removal import remove
from truecopy.transfer.cutover import state
from truecopy.transfer.cutover.back import forth_name, is_back, returns, way_back
from truecopy.transfer.cutover.state import Steps
from truecopy.transfer.cutover.stillness import changes_after
from truecopy.transfer.ledger import REPLICATE, Ledger
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.settings import Settings


def forget_given_up(settings: Settings, plans: Mapping[str, TablePlan], epoch: int) -> None:
    """Removes what a cutover had made for the way back that was killed before it locked anybody out.

    It is for whoever has taken the task over: nobody reads that slot, and it would hold the new side's log.
    """
    steps = Steps(parse_endpoint(settings.target), settings.task)
    if (left := steps.find()) is None or left.name != state.CATCHING_UP:
        return
    if not steps.take_given_up(epoch):
        return  # it goes on, and comes to know that it was overtaken; or another has begun
    with ExitStack() as stack:
        back = way_back(settings, returns(plans))
        # The way back of a way back is the task itself.
        back = replace(back, task=forth_name(settings.task)) if is_back(settings) else back
        Returning(back, stack).remove()
    steps.enter(state.ROLLED_BACK, epoch, left.detail)


class Returning:
    """Changes of the new side on their way to the old one.

    Args:
        settings: Of that direction.
        stack: Where what is opened is closed.
    """

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._request = settings.request
        self._old = parse_endpoint(settings.target)
        self._stream: KeyspaceStream | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it was prepared."""
        return self._stream is not None

    def prepare(self) -> None:
        """The new side must be able to tell its changes, and the old one to take them."""
        self.remove()
        try:
            self._require_listed()
            stream = self._opened()
            if lines := stream.missing():
                raise CannotFinish("; ".join(lines))
            stream.current()  # whatever has to be made for it, such as a slot, is made now
            with pool.lease(self._old) as old:
                Ledger(cast(Any, old), self._settings.task).create()
            Steps(self._old, self._settings.task).create()
        except TruecopyError as error:
            self.remove()
            raise UsageError(
                f"there would be no way back: {error} (cutover.reverse: false cuts over without one)"
            ) from None

    def _require_listed(self) -> None:
        """Tables of another database of a server are written to by their names, and are no tables of its URL's."""
        new = parse_endpoint(self._settings.source)
        with pool.lease(new) as session:
            listed = {str(name) for name in cast(Introspects, session).tables()}
        if others := [name for name in self._settings.tables if name not in listed]:
            raise UsageError(f"{', '.join(others)} is in another database than that of {new}")

    def locked(self) -> dict[str, Any]:
        """How the new side was locked, where an earlier cutover away from it did that."""
        found = Steps(self._old, self._settings.task).find()
        if found is None or found.name != state.SWITCHED:
            return {}
        return {name: found.detail[name] for name in ("way", "before") if name in found.detail}

    def origin(self) -> dict[str, Any]:
        """The end of the new side's log."""
        assert self._stream is not None
        return self._stream.current().plain()

    def begin(self, origin: Mapping[str, Any], tables: Sequence[str]) -> None:
        """Writes down that both sides are equal there; may be done again."""
        with pool.lease(self._old) as old:
            Ledger(cast(Any, old), self._settings.task).restart(REPLICATE, origin, tables)

    def is_unused(self, origin: Mapping[str, Any], tables: Mapping[str, Any]) -> bool:
        """Whether it is sure that nobody has written to the new side since."""
        return not changes_after(self._opened(), Offset.parse(origin), tables)

    def open_again(self) -> None:
        """From here on the task goes this way, and its last cutover in this direction is history."""
        Steps(self._old, self._settings.task).forget()

    def remove(self) -> None:
        """What was made on the new side for it, by whomever, would hold its log for ever."""
        if self._stream is not None:
            with suppress(TruecopyError):
                self._stream.close()
            self._stream = None
        with suppress(TruecopyError):
            remove(self._request)

    def _opened(self) -> KeyspaceStream:
        if self._stream is None:
            self._stream = self._stack.enter_context(KeyspaceStream(self._request))
        return self._stream

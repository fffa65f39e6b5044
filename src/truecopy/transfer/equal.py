"""A task whose two ends are equal before it begins: the way back of a reshard, or a copy that was made otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from truecopy.engines import connect, pool
from truecopy.model.endpoint import parse_endpoint
from truecopy.transfer.ledger import REPLICATE, Ledger
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings


def begin_equal(settings: Settings, said: Callable[[str], None] = lambda _: None) -> None:
    """Notes that nothing is to be copied, and from where on changes are wanted; a task that has begun goes on.

    Nobody may write to either end meanwhile. Whether they are equal, verifiers find out when it runs.
    """
    transfer = Transfer(settings, Listener(said=said))
    with (
        connect(parse_endpoint(settings.source)) as source,
        pool.lease(parse_endpoint(settings.target)) as target,
    ):
        ledger = Ledger(cast(Any, target), settings.task)
        ledger.create()
        if ledger.find() is not None:
            return
        plans = transfer.prepare(source, target)
        ledger.restart(REPLICATE, transfer.beginning(plans), list(plans))

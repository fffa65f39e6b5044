"""The copy of tables that foreign keys tie together: chunk after chunk out of one snapshot (`ties`).

A snapshot lives as long as one connection, so this process reads it, a chunk at a time. When it is lost, what
was copied out of it is taken out again: rows of two moments do not fit together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

from truecopy.engines import connect
from truecopy.engines.lines import transaction
from truecopy.engines.protocols import HidesCascades
from truecopy.model.endpoint import Endpoint
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.snapshot import Copied, Paced, tried, write_chunk


def copy_tied(source: Endpoint, plans: Mapping[str, TablePlan], pace: Paced) -> Iterator[Copied]:
    """Copies all chunks of some tables, which are empty on the target."""
    tables = [name for plan in plans.values() for name in plan.read.tables]
    with connect(source) as session, cast(HidesCascades, session).snapshot(tables) as position:
        while group := pace.next_group(per_lane=1):
            for task in group:
                begun = time.monotonic()
                rows = cast(Any, session).fingerprinted_rows(task.plan.read, task.chunk)
                # What was read is at hand: only the target is tried again.
                write = partial(write_chunk, task, rows, begun, position)
                copied = tried(write, task.plan.source_name)
                pace.note(copied)
                yield copied


def start_over(
    target: Any, ledger: Ledger, plans: Mapping[str, TablePlan], epoch: int, annotation: str
) -> None:
    """Takes out what was copied out of a snapshot that is gone."""
    with transaction(target):
        ledger.forget(list(plans), epoch)
        for plan in plans.values():
            target.delete_all(plan.target, annotation=annotation)

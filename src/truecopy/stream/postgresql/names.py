"""What the stream's things are called, and which tables it carries."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from truecopy.model.change import ORIGIN_TABLE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.spark import state_folder
from truecopy.stream.log import Wanted
from truecopy.stream.tables import Choice

_SLOT = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True)
class Names:
    """Of the slot, the publication and the work folder of one stream."""

    slot: str
    publication: str
    work: str


def stream_names(endpoint: Endpoint, wanted: Wanted) -> Names:
    """As the settings say; else by the database, the shard and the tables, so that streams do not meet."""
    what = "\n".join([endpoint.identity, wanted.shard, *sorted(wanted.tables)])
    own = f"truecopy_{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    slot = wanted.settings.get("slot") or own
    if not _SLOT.fullmatch(slot):
        raise UsageError(
            f"{slot!r} cannot be the name of a slot: lower-case letters, digits and _, at most 63"
        )
    return Names(
        slot=slot,
        publication=wanted.settings.get("publication") or slot,
        work=wanted.settings.get("work") or str(state_folder() / "streams" / slot),
    )


def number_setting(wanted: Wanted, name: str, default: float) -> float:
    """A setting that is a number."""
    given = wanted.settings.get(name)
    try:
        return default if given is None else float(given)
    except ValueError:
        raise UsageError(f"the setting {name}={given} is not a number") from None


def is_wanted(table: str, patterns: tuple[str, ...]) -> bool:
    """Whether a stream of these names and patterns carries a table, given as `schema.table`."""
    schema, _, name = table.partition(".")
    return _choice(patterns).wants(schema, name)


def is_origin(table: str) -> bool:
    """Whether filtered replication marks its transactions in this table, given as `schema.table`."""
    return table.partition(".")[2] == ORIGIN_TABLE


@lru_cache
def _choice(patterns: tuple[str, ...]) -> Choice:
    # Schemas are no databases: a bare name means a table of any schema.
    return Choice(patterns, "")

"""Opening a log that is there, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from truecopy.changelog.log import Log
from truecopy.changelog.store import Store
from truecopy.changelog.table_store import TableStore
from truecopy.model.endpoint import parse_endpoint

CHANGES = "changes"
"""The name of a log in a database that was given none."""


@contextmanager
def open_log(place: str | Path, name: str = CHANGES) -> Iterator[Log]:
    """The log of a folder, or the one of this name in a database."""
    folder = log_folder(place)
    if folder is None:
        yield TableStore.open(parse_endpoint(str(place)), name)
        return
    with Store.open(folder) as store:
        store.publish()
        yield store


def log_folder(place: str | Path) -> Path | None:
    """The folder of a log; None where a database is meant."""
    if isinstance(place, Path) or "://" not in place:
        return Path(place).absolute()
    endpoint = parse_endpoint(place)
    return Path("/" + endpoint.path.lstrip("/")) if endpoint.scheme == "lake" else None

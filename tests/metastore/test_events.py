"""Events and the audit log: what is old goes, what is new stays."""

from __future__ import annotations

from sqlalchemy import insert, update

from truecopy.metastore.control import audit, event, now
from truecopy.metastore.database import open_metastore
from truecopy.metastore.events import Events

_DAY = 86_400_000_000


def test_what_is_older_than_so_many_days_goes(metastore_url: str) -> None:
    events = Events(metastore_url)
    old = {"at": now() - 91 * _DAY, "task": "shop", "kind": "state", "message": "", "detail": "{}"}
    with open_metastore(metastore_url).begin() as connection:
        connection.execute(insert(event), [old] * 2100)
    for number in range(3):
        events.tell("shop", "state", f"event {number}")
    for who in ("ada", "bob", "eve"):
        events.note(who, "admin", "::1", "add_task", "/api/tasks", "201")
    with open_metastore(metastore_url).begin() as connection:
        older = update(audit).where(audit.c.who == "ada")
        connection.execute(older.values(at=now() - 400 * _DAY))
    assert events.prune(0, 0) == 0
    last = events.last_number()
    assert events.prune(90, 365) == 2101
    assert [one.message for one in events.latest()] == ["event 2", "event 1", "event 0"]
    assert [one.who for one in events.audited()] == ["eve", "bob"]
    assert events.prune(90, 365) == 0
    events.tell("shop", "state", "another")
    assert events.last_number() > last

"""Which tables of PostgreSQL can be published: in production no change may fail because of the stream."""

from __future__ import annotations

from tests.servers import Database
from tests.stream.replay import read_changes, replay
from tests.stream.slots import Slots
from truecopy.engines.postgresql import PostgreSQL as Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.table import TableName
from truecopy.stream.log import ChangeLog
from truecopy.stream.postgresql.log import PostgreSQLLog

PARTED = "CREATE TABLE {0} ({1}) PARTITION BY LIST (r)"
PART = "CREATE TABLE {0}_{1} PARTITION OF {0} FOR VALUES IN ({1})"


def make_parted(db: Database, table: str, columns: str, parts: int = 2) -> None:
    db.execute(PARTED.format(table, columns))
    for number in range(parts):
        db.execute(PART.format(table, number))


def left_out_of(log: ChangeLog) -> dict[str, str]:
    """Why a stream does not carry tables, by their names."""
    assert isinstance(log, PostgreSQLLog)
    return {table.removeprefix("public."): why for table, why in log.left_out.items()}


def test_a_key_that_can_be_deferred_is_no_identity(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, v int)")
    db.execute("CREATE TABLE whole (id int PRIMARY KEY DEFERRABLE, v int)")
    db.execute("CREATE TABLE two (id int PRIMARY KEY DEFERRABLE, v int NOT NULL UNIQUE)")
    db.execute("CREATE TABLE keyed (id int NOT NULL UNIQUE, v int PRIMARY KEY DEFERRABLE)")
    for table in ("whole", "keyed"):
        db.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    opened = stream()
    start = opened.oldest()
    left_out = left_out_of(opened)
    assert left_out.keys() == {"late", "whole", "two"}
    assert all("add it NOT DEFERRABLE" in left_out[table] for table in ("late", "whole"))
    assert "REPLICA IDENTITY FULL" in left_out["two"]
    for table in ("late", "whole", "two", "keyed"):
        db.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
        db.execute(f"UPDATE {table} SET v = v + 2; DELETE FROM {table} WHERE id = 2")
    with Session(parse_endpoint(db.url)) as session:
        assert session.describe(TableName("public", "keyed")).keys[0] == ("id",)
    changes = read_changes(opened, start, opened.current())
    assert replay(changes) == {"public.keyed": {("1",): {"id": "1", "v": "3"}}}


def test_each_partition_has_an_identity_of_its_own(db: Database, stream: Slots) -> None:
    make_parted(db, "root", "id int, r int", 5)
    make_parted(db, "leaf", "id int, r int, PRIMARY KEY (id, r)")
    make_parted(db, "before", "id int, r int, PRIMARY KEY (id, r)")
    make_parted(db, "whole", "id int, r int")
    make_parted(db, "keyed", "id int, r int, PRIMARY KEY (id, r)")
    db.execute("ALTER TABLE root REPLICA IDENTITY FULL; ALTER TABLE before REPLICA IDENTITY FULL")
    db.execute("ALTER TABLE leaf_1 REPLICA IDENTITY NOTHING")
    for table in ("whole", "whole_0", "whole_1", "keyed_0"):
        db.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    opened = stream()
    start = opened.oldest()
    left_out = left_out_of(opened)
    assert left_out.keys() == {"root", "leaf", "before"}
    named = "public.root_0, public.root_1, public.root_2 and 2 more lack"
    assert named in left_out["root"]
    assert 'ALTER TABLE "public"."root_0" REPLICA IDENTITY FULL; ' in left_out["root"]
    assert left_out["root"].endswith("; and so for 2 more")
    assert left_out["leaf"].endswith(': ALTER TABLE "public"."leaf_1" REPLICA IDENTITY FULL')
    # What is before a change would come as NULL, but for the key.
    assert "before_0, public.before_1 lack" in left_out["before"]
    for table in ("root", "leaf", "before", "whole", "keyed"):
        db.execute(f"INSERT INTO {table} VALUES (1, 0), (2, 1)")
        db.execute(f"UPDATE {table} SET id = id + 2; DELETE FROM {table} WHERE id = 4")
    tables = {c["table"] for c in read_changes(opened, start, opened.current())}
    assert tables == {"public.whole", "public.keyed"}


def test_children_are_published_under_their_own_names_only(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE log (id int PRIMARY KEY, v int); CREATE TABLE bare () INHERITS (log)")
    db.execute(
        "CREATE TABLE keyed (PRIMARY KEY (id)) INHERITS (log); INSERT INTO bare VALUES (3, 3)"
    )
    opened = stream("log", "keyed")
    start = opened.oldest()
    db.execute("INSERT INTO log VALUES (1, 1); INSERT INTO keyed VALUES (2, 2)")
    db.execute("UPDATE log SET v = 5; UPDATE bare SET v = 6; DELETE FROM bare")
    changes = read_changes(opened, start, opened.current())
    assert [(c["kind"], c["table"], c["key"]) for c in changes] == [
        ("insert", "public.log", ["1"]), ("insert", "public.keyed", ["2"]),
        ("update", "public.log", ["1"]), ("update", "public.keyed", ["2"]),
    ]  # fmt: skip
    opened.close()
    db.execute("ALTER TABLE log REPLICA IDENTITY NOTHING")
    stream("keyed", "l*")
    assert db.execute("SELECT tablename::text FROM pg_publication_tables") == [("keyed",)]

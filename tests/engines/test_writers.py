"""Writers are held off and let in again, exactly as they were."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pymysql
import pytest

from tests.servers import Database, PostgreSQL
from tests.transfer.cutting import application, fill
from truecopy.engines import connect
from truecopy.engines.writers import READ_ONLY, REVOKE, TABLES, WriterGate
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.table import TableName

RIGHTS = """
SELECT o.name, x.grantor::regrole::text, x.grantee, x.privilege_type, x.is_grantable
FROM (
    SELECT relname AS name, COALESCE(relacl, acldefault('r', relowner)) AS acl FROM pg_class
    WHERE relname IN ('orders', 'notes')
    UNION ALL
    SELECT attname, attacl FROM pg_attribute WHERE attrelid IN ('orders'::regclass, 'notes'::regclass)
) o, aclexplode(o.acl) x
"""


@contextmanager
def gate_of(database: Database) -> Iterator[WriterGate]:
    with connect(parse_endpoint(database.url)) as session:
        gate: WriterGate = session.writers()  # type: ignore[attr-defined]
        yield gate


def tables_of(database: Database) -> list[TableName]:
    schema = "public" if database.server.scheme.startswith("postgres") else database.name
    return [TableName(schema, "orders"), TableName(schema, "notes")]


def test_a_read_only_server_turns_writers_away(mariadb_db: Database) -> None:
    fill(mariadb_db, 5)
    tables = tables_of(mariadb_db)
    with application(mariadb_db) as app, gate_of(mariadb_db) as gate:
        late = app.connect()
        cursor = late.cursor()
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM notes")
        before = gate.survey(READ_ONLY, tables)
        gate.hold(READ_ONLY, tables, before, 10)
        assert not app.can_write()
        with pytest.raises(pymysql.MySQLError, match="read-only"):
            cursor.execute("COMMIT")
        late.close()
        gate.release(READ_ONLY, before)
        assert app.can_write()
        mariadb_db.execute("SET GLOBAL read_only = 1")
        again = gate.survey(READ_ONLY, tables)
        gate.hold(READ_ONLY, tables, again, 10)
        gate.release(READ_ONLY, again)
        assert not app.can_write(), "it was read-only before"


def test_table_locks_turn_away_who_waits(mariadb_db: Database) -> None:
    """Whoever waited for the lock must not write to the side that was left."""
    fill(mariadb_db, 5)
    tables = tables_of(mariadb_db)
    with application(mariadb_db) as app, gate_of(mariadb_db) as gate:
        gate.hold(TABLES, tables, {}, 10)
        failed: list[BaseException] = []

        def write() -> None:
            try:
                app.execute("UPDATE notes SET body = 'late'")
            except pymysql.MySQLError as error:
                failed.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not mariadb_db.execute(
            "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
        ):
            time.sleep(0.02)
        gate.leave(TABLES, tables)
        thread.join()
        assert failed
        assert not mariadb_db.execute("SELECT 1 FROM notes WHERE body = 'late'")
        assert app.can_write()


def test_who_waits_is_known_by_nothing_but_that(mariadb_db: Database) -> None:
    """By default in another database, in none, or in a procedure: all of them would write to the side that was left."""
    fill(mariadb_db, 5)
    tables = tables_of(mariadb_db)
    other = mariadb_db.server.create_database(f"other_{secrets.token_hex(3)}")
    other.execute(
        f"CREATE PROCEDURE late() UPDATE {mariadb_db.name}.notes SET body = 'late' WHERE id = 2"
    )
    late = f"UPDATE {mariadb_db.name}.notes SET body = 'late' WHERE id = 1"
    failed: list[BaseException] = []

    def write(statement: str) -> None:
        try:
            other.execute(statement)
        except pymysql.MySQLError as error:
            failed.append(error)

    with gate_of(mariadb_db) as gate:
        gate.hold(TABLES, tables, {}, 10)
        threads = [threading.Thread(target=write, args=(one,)) for one in (late, "CALL late()")]
        for thread in threads:
            thread.start()
        waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and mariadb_db.execute(waiting) != [(2,)]:
            time.sleep(0.02)
        gate.leave(TABLES, tables)
        for thread in threads:
            thread.join()
    assert len(failed) == 2
    assert not mariadb_db.execute("SELECT 1 FROM notes WHERE body = 'late'")
    mariadb_db.server.drop_database(other.name)


@contextmanager
def roles(database: Database, *names: str) -> Iterator[list[str]]:
    made = [f"{name}_{secrets.token_hex(3)}" for name in names]
    for name in made:
        database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    try:
        yield made
    finally:
        for name in made:
            database.execute(f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}")
        for name in made:
            database.execute(f"DROP ROLE {name}")


def login(database: Database, role: str) -> Any:
    server = database.server
    return psycopg.connect(
        host=server.host,
        port=server.port,
        user=role,
        password="secret",
        dbname=database.name,
        autocommit=True,
    )


def test_rights_come_back_exactly(postgres_db: Database) -> None:
    """Owners, roles with a grant option and those whom they gave it, single columns, PUBLIC."""
    fill(postgres_db, 5)
    tables = tables_of(postgres_db)
    with roles(postgres_db, "owner", "lead", "hand", "clerk") as (owner, lead, hand, clerk):
        postgres_db.execute(
            f"""ALTER TABLE orders OWNER TO {owner};
            GRANT SELECT, INSERT, UPDATE ON orders TO {lead} WITH GRANT OPTION;
            SET ROLE {lead}; GRANT INSERT, UPDATE ON orders TO {hand}; RESET ROLE;
            GRANT UPDATE (total) ON orders TO {clerk};
            GRANT DELETE ON notes TO PUBLIC; GRANT TRUNCATE, SELECT ON notes TO {clerk}"""
        )
        as_it_was = set(postgres_db.execute(RIGHTS))
        writes = {
            owner: "UPDATE orders SET total = 1 WHERE id = 1",
            hand: "INSERT INTO orders (id, code, total) VALUES (99, 'x', 1) ON CONFLICT DO NOTHING",
            clerk: "UPDATE orders SET total = 2",
            lead: "DELETE FROM notes",
        }
        late = login(postgres_db, owner)
        late.execute("BEGIN")
        late.execute("UPDATE orders SET total = 7 WHERE id = 2")
        with gate_of(postgres_db) as gate:
            before = gate.survey(REVOKE, tables)
            gate.hold(REVOKE, tables, before, 10)
            with pytest.raises(psycopg.Error):
                late.execute("COMMIT")
            for role, statement in writes.items():
                with (
                    login(postgres_db, role) as session,
                    pytest.raises(psycopg.Error, match="denied"),
                ):
                    session.execute(statement)
        with gate_of(postgres_db) as gate:  # as another process would
            gate.release(REVOKE, before)
            gate.release(REVOKE, before)
        assert set(postgres_db.execute(RIGHTS)) == as_it_was
        with login(postgres_db, hand) as session:
            session.execute(writes[hand])
        with suppress(psycopg.Error):
            late.close()


def test_partitions_and_children_are_held_as_well(postgres_db: Database) -> None:
    """Each can be written to by its own name, and has rights of its own."""
    postgres_db.execute(
        """CREATE TABLE orders (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
        CREATE TABLE lowest PARTITION OF low FOR VALUES FROM (0) TO (5);
        CREATE TABLE notes (id int PRIMARY KEY); CREATE TABLE more () INHERITS (notes)"""
    )
    tables, leaves = tables_of(postgres_db), ("low", "lowest", "more")
    with roles(postgres_db, "app") as (app,):
        postgres_db.execute(f"GRANT SELECT, INSERT ON orders, low, lowest, notes, more TO {app}")
        late = login(postgres_db, app)
        late.execute("BEGIN")
        late.execute("INSERT INTO lowest VALUES (1)")
        with gate_of(postgres_db) as gate:
            before = gate.survey(REVOKE, tables)
            assert not gate.is_held(REVOKE, tables)
            gate.hold(REVOKE, tables, before, 10)
            assert gate.is_held(REVOKE, tables)
            with pytest.raises(psycopg.Error):
                late.execute("COMMIT")
            with login(postgres_db, app) as session:
                for table in leaves:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        session.execute(f"INSERT INTO {table} VALUES (2)")
                assert gate.release(REVOKE, before) == []
                for table in leaves:
                    session.execute(
                        f"INSERT INTO {table} VALUES (3)" if table != "low" else "SELECT 1"
                    )


def test_rights_of_those_who_are_gone_keep_nobody_out(postgres_db: Database) -> None:
    fill(postgres_db, 5)
    tables = tables_of(postgres_db)
    with roles(postgres_db, "app", "lead") as (app, lead):
        postgres_db.execute("CREATE ROLE gone")
        postgres_db.execute(
            f"""GRANT INSERT, UPDATE ON orders TO gone, {app};
            GRANT UPDATE (total), UPDATE (code) ON orders TO {app};
            GRANT DELETE ON notes TO {lead} WITH GRANT OPTION;
            SET ROLE {lead}; GRANT DELETE ON notes TO {app}; RESET ROLE"""
        )
        with gate_of(postgres_db) as gate:
            before = gate.survey(REVOKE, tables)
            gate.hold(REVOKE, tables, before, 10)
        postgres_db.execute("DROP ROLE gone; ALTER TABLE orders DROP COLUMN code")
        with gate_of(postgres_db) as gate:
            said = gate.release(REVOKE, before)
        assert sorted(said) == [
            f"{app} does not get UPDATE (code) on public.orders back: one of them is gone",
            "gone does not get INSERT on public.orders back: one of them is gone",
            "gone does not get UPDATE on public.orders back: one of them is gone",
        ]
        with login(postgres_db, app) as session:
            session.execute("UPDATE orders SET total = 2")
            session.execute("DELETE FROM notes WHERE false")


def test_a_prepared_transaction_is_named() -> None:
    with PostgreSQL("-c", "max_prepared_transactions=2") as server:
        database = server.create_database("prepared")
        fill(database, 5)
        tables = tables_of(database)
        database.execute("BEGIN; DELETE FROM notes; PREPARE TRANSACTION 'late'")
        with gate_of(database) as gate, pytest.raises(CannotFinish, match="PREPARED"):
            gate.hold(REVOKE, tables, gate.survey(REVOKE, tables), 5)

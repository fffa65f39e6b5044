"""The metastore's tables: as the code knows them, whichever version made them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import LargeBinary, MetaData, create_engine, inspect, text

from truecopy.metastore import control, definitions, known_progress, validation_schema
from truecopy.metastore.database import open_metastore
from truecopy.metastore.definitions import Definitions
from truecopy.metastore.migrating import HEAD
from truecopy.metastore.validation_errors import Found
from truecopy.metastore.validations import Validations
from truecopy.model.errors import UsageError


def _known() -> MetaData:
    whole = MetaData()
    parts = definitions._metadata, validation_schema.metadata, control.metadata
    for part in (*parts, known_progress.metadata):
        for table in part.tables.values():
            table.to_metadata(whole)
    return whole


def test_the_steps_make_the_tables_that_the_code_knows(metastore_url: str) -> None:
    engine = open_metastore(metastore_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": _differs})
        assert compare_metadata(context, _known()) == []


def _differs(*types: object) -> bool | None:
    """MariaDB chooses a kind of BLOB by the length that is asked for; None: as is usual."""
    return False if isinstance(types[-1], LargeBinary) else None


def test_tables_without_a_history_are_taken_up(metastore_url: str) -> None:
    engine = create_engine(metastore_url)
    definitions._metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO definition_set (set_id, document) VALUES ('a', '{}')"))
    engine.dispose()
    assert Definitions(metastore_url).find_set("a") == {}
    assert inspect(open_metastore(metastore_url)).has_table("task")


def test_files_of_earlier_versions_are_taken_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUECOPY_STATE", str(tmp_path))
    monkeypatch.delenv("TRUECOPY_METASTORE", raising=False)
    for file, part in (
        ("definitions.db", definitions._metadata),
        ("validations.db", validation_schema.metadata),
    ):
        engine = create_engine(f"sqlite:///{tmp_path / file}")
        part.create_all(engine)
        engine.dispose()
    with sqlite3.connect(tmp_path / "definitions.db") as earlier:
        earlier.execute("INSERT INTO definition_set VALUES ('a', '{}')")
    earlier.close()
    before = Validations(f"sqlite:///{tmp_path / 'validations.db'}")
    epoch = before.claim("shop", "full", {}).epoch
    found = [Found(f"row {number}", "orders", kind="missing") for number in range(3)]
    before.store("shop", epoch, {}, {}, (), (), found, caught_up=True)
    before._engine.dispose()

    after = Validations()
    assert [error.id for error in after.errors.of("shop")] == [1, 2, 3]
    assert Definitions().find_set("a") == {}
    assert not (tmp_path / "validations.db").exists()
    more = [Found("row 4", "orders", kind="extra")]
    after.store("shop", epoch, {}, {}, (), (), more, caught_up=True)
    assert [error.id for error in after.errors.of("shop")] == [1, 2, 3, 4]


def test_an_error_of_a_large_row_is_kept(metastore_url: str) -> None:
    store = Validations(metastore_url)
    epoch = store.claim("shop", "full", {}).epoch
    large = {"note": "ü" * 100_000}
    found = Found("row", "orders", kind="differs", key={"id": "1"}, source=large, target=large)
    store.store("shop", epoch, {}, {}, (), (), [found], caught_up=True)
    (error,) = store.errors.of("shop")
    assert error.source == large


def test_a_newer_metastore_is_refused(metastore_url: str) -> None:
    engine = create_engine(metastore_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))
    engine.dispose()
    with pytest.raises(UsageError, match="newer version of truecopy"):
        open_metastore(metastore_url)


def test_many_open_a_new_metastore_at_once(metastore_url: str) -> None:
    program = (
        "import sys; from truecopy.metastore.tasks import Tasks; print(Tasks(sys.argv[1]).all())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, metastore_url], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [process.communicate(timeout=120)[0] for process in started] == ["[]\n"] * 4
    with open_metastore(metastore_url).connect() as connection:
        version = connection.execute(text("SELECT version_num FROM alembic_version"))
        assert version.scalars().all() == [HEAD]

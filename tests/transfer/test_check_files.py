"""`truecopy check` between files: SQLite and DuckDB."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path

import duckdb
import pytest

from tests.servers import Database
from tests.transfer.checking import check, errors, found
from truecopy.model.finding import Level, Subject


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "shop.db", tmp_path / "shop.duckdb"
    with sqlite3.connect(source) as connection:
        connection.execute(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE UNIQUE)"
        )
        connection.execute("CREATE VIEW looks AS SELECT * FROM items")
        connection.execute("INSERT INTO items VALUES (1, 'a')")
    connection.close()
    duckdb.connect(str(target)).close()
    return source, target


def urls(files: tuple[Path, Path]) -> tuple[str, str]:
    return f"sqlite:///{files[0]}", f"duckdb:///{files[1]}"


def digests(files: tuple[Path, Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


def test_both_files_stay_as_they_are(files: tuple[Path, Path]) -> None:
    before = digests(files)
    report = check(*urls(files), consistency="table")
    assert report.is_ready, errors(report)
    assert report.source_level == "table", "triggers do not tell where transactions end"
    assert [thing.kind for thing in report.inventory] == ["views"]
    assert digests(files) == before
    assert sorted(path.name for path in files[0].parent.iterdir()) == ["shop.db", "shop.duckdb"]


def test_asking_for_more_than_the_ends_can_give_is_refused(files: tuple[Path, Path]) -> None:
    report = check(*urls(files), consistency="transaction")
    refused = found(report, Subject.GUARANTEE, "consistency: transaction cannot be had")
    assert (refused.level, refused.remedy) == (Level.ERROR, "write consistency: table")
    report = check(*urls(files), delivery="at-most-once", consistency="table")
    found(report, Subject.GUARANTEE, "at-most-once may lose changes")


def test_a_source_without_a_log(files: tuple[Path, Path]) -> None:
    source, target = urls(files)
    report = check(target, source)
    assert "has no change stream" in found(report, Subject.LOG, "duckdb://").message
    assert report.guarantee is None


def test_a_file_that_may_not_be_written(files: tuple[Path, Path]) -> None:
    files[1].chmod(0o400)
    report = check(*urls(files), consistency="table")
    if files[1].stat().st_uid == 0:
        assert report.is_ready, "root may write whatever the mode says"
    else:
        found(report, Subject.RIGHTS, "may not be written")


def test_foreign_keys_of_duckdb_cannot_wait(files: tuple[Path, Path]) -> None:
    with duckdb.connect(str(files[1])) as connection:
        connection.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE items (id INTEGER PRIMARY KEY REFERENCES parents (id), name VARCHAR)"
        )
    report = check(*urls(files), consistency="table")
    assert found(report, Subject.REFERENCES, "checks foreign keys at once").level is Level.ERROR


@pytest.mark.parametrize(
    ("share", "level"), [(0.5, Level.ERROR), (1.5, Level.WARNING), (3.0, None)]
)
def test_free_space(
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    level: Level | None,
) -> None:
    needed = check(*urls(files), consistency="table").estimate.bytes
    disk = shutil.disk_usage(files[1].parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=int(share * needed)))
    report = check(*urls(files), consistency="table")
    assert report.is_ready is (level is not Level.ERROR)
    said = [one for one in report.findings if one.subject is Subject.SPACE]
    assert [one.level for one in said] == ([level] if level else [])
    assert all(one.remedy.startswith("make room (df -h ") for one in said)
    assert all(str(files[1].parent) in one.remedy for one in said)


def test_a_server_does_not_tell_its_free_space(
    files: tuple[Path, Path], mariadb_db: Database, postgres_db: Database
) -> None:
    for target in (mariadb_db, postgres_db):
        report = check(urls(files)[0], target, consistency="table")
        untold = found(report, Subject.SPACE, "does not say how much space it has left")
        assert untold.level is Level.INFO
        assert untold.remedy.startswith("df -h ")

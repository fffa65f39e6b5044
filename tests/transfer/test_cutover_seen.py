"""A task that was cut over, from outside: `status` tells of the way that it goes, and `pause` holds that up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import cut_over, fill, is_equal, started, switch_back
from truecopy.cli.status import describe
from truecopy.tasks.file import Task, load_task
from truecopy.tasks.steering import controls, heading_legs, status_documents
from truecopy.transfer.cutover.standing import standing
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_its_way_is_told_and_held_up(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db, "shop")
    file = tmp_path / "shop.yaml"
    file.write_text(f"task: shop\nsource: {settings.source}\ntarget: {settings.target}\n")
    task = load_task(file)
    assert _told(task)[0].endswith("stopped, phase replicate")

    assert cut_over(settings).state == "switched"
    head, over, *_ = _told(task)
    assert head.startswith("shop/back: stopped")
    assert over.startswith("cut over ")
    assert "truecopy switch-back brings writers back" in over
    (document,) = status_documents(task)
    assert document["cutover"]["step"] == "switched"

    way_back = standing(settings)
    with _running(way_back):
        _soon(lambda: status_documents(task)[0]["state"] == "running")
        for _, control in controls(task):
            control.pause()
        _soon(lambda: read_status(way_back).progress.waits == "paused by hand")
        second_mariadb_db.execute("UPDATE notes SET body = 'held' WHERE id = 7")
        time.sleep(3)
        assert mariadb_db.execute("SELECT body FROM notes WHERE id = 7") != [("held",)]
        for _, control in controls(task):
            control.resume()
        _soon(lambda: mariadb_db.execute("SELECT body FROM notes WHERE id = 7") == [("held",)])

    assert switch_back(settings).state == "switched"
    assert not any(line.startswith("cut over") for line in _told(task))
    assert is_equal(mariadb_db, second_mariadb_db)


def _told(task: Task) -> list[str]:
    ((leg, step),) = heading_legs(task)
    told = describe(read_status(leg), [], step)
    return [line.replace("[bold]", "").replace("[/]", "") for line in told]


@contextmanager
def _running(settings: Settings) -> Iterator[None]:
    work = Transfer(settings)
    thread = threading.Thread(target=work.run)
    thread.start()
    try:
        yield
    finally:
        work.stop()
        thread.join()


def _soon(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)

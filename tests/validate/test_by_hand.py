"""What people and programs do with a running validation: look again, let go, scrape."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.servers import Database
from tests.validate.scraping import free_port, scraped
from tests.validate.watching import begun, copied, validating
from truecopy.metastore.validation_errors import NEW, RESOLVED
from truecopy.metastore.validations import Validations
from truecopy.model.errors import UsageError
from truecopy.transfer.continuous.metrics import serving
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.mark.long
def test_errors_are_looked_at_again_let_go_of_and_scraped(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target, store = mariadb_db, second_mariadb_db, Validations()
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    copied(settings)
    target.execute("UPDATE t SET v = -1 WHERE id < 3")
    port = free_port()
    # A change is checked though the interval is not over; an error is looked at by itself after two intervals.
    with (
        serving(port, [task]),
        validating(
            settings, validate_interval=3600.0, validate_changes=1, row_error_delay=1.0
        ) as watched,
    ):
        one, two = sorted(watched.until_errors(2), key=lambda error: str(error.key["id"]))
        figures = scraped(port)
        assert figures[f'truecopy_validate_errors{{task="{task}",status="new"}}'] == 2
        assert figures[f'truecopy_validate_processed_total{{task="{task}",kind="insert"}}'] == 3
        assert figures[f'truecopy_validate_running{{task="{task}"}}'] == 1
        assert figures[f'truecopy_validate_pending_rows{{task="{task}",kind="insert"}}'] == 0
        assert f'truecopy_validate_rows_per_second{{task="{task}"}}' in figures
        watched.until(
            lambda: f'truecopy_validate_lag_seconds{{task="{task}"}}' in scraped(port), "a lag"
        )
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/", timeout=10)
        with pytest.raises(UsageError, match=str(port)), serving(port, [task]):
            pass

        target.execute("UPDATE t SET v = id WHERE id = 1")
        time.sleep(3)
        assert {error.status for error in watched.errors} == {NEW}
        store.errors.recheck(task, None)
        watched.until(lambda: len(watched.new) == 1, "the right one resolves itself", 60)
        (left,) = watched.new
        assert (left.id, left.first_failed_at) == (two.id, two.first_failed_at)
        assert left.last_failed_at > two.last_failed_at
        assert [e.status for e in watched.errors if e.id == one.id] == [RESOLVED]

        store.errors.resolve(task, [two.id])
        watched.until(lambda: not store.errors.wishes(task), "the wish was followed", 60)
        assert watched.standing.pending.errors == 0
        target.execute(
            "CREATE TRIGGER pin BEFORE INSERT ON t FOR EACH ROW SET NEW.v = IF(NEW.id = 2, -1, NEW.v)"
        )
        source.execute("UPDATE t SET v = v + 10 WHERE id = 2")
        copied(settings)
        (again,) = watched.until_errors(1)
        assert (again.key, again.source, again.target) == ({"id": "2"}, {"v": "12"}, {"v": "-1"})
        assert sorted(error.status for error in watched.errors) == [NEW, RESOLVED, RESOLVED]

        source.execute("INSERT INTO t VALUES (4, 4)")  # which nobody brings
        watched.until(lambda: bool(watched.standing.plain()["waits"]), "it waits")
        store.errors.clear(task, [again.id])
        watched.until(lambda: not store.errors.wishes(task), "what is asked for need not wait", 60)
        assert watched.standing.plain()["waits"]
        assert [error.status for error in watched.errors] == [RESOLVED, RESOLVED]
    with pytest.raises(URLError):
        scraped(port)

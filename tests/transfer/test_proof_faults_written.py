"""Faults that our own writing has, in runs and cutovers as users start them: what is written is not what was meant.

Triggers of the target, which fire for whoever writes, stand for a writer that is broken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from tests.transfer.cutting import HOW, application, cut_over, fill
from truecopy.model.errors import CannotFinish
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN = """CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
CREATE TRIGGER broken BEFORE {event} ON notes FOR EACH ROW EXECUTE FUNCTION broken();
ALTER TABLE notes ENABLE ALWAYS TRIGGER broken"""

INSERT, DELETE = "INSERT", "DELETE"

# What happens, which event is broken in which way, what the source does, and the rows that are wrong then.
FAULTS = {
    "an incorrect UPDATE": (
        INSERT,
        "IF NEW.id = 3 THEN NEW.body := 'Zo?'; END IF; RETURN NEW;",
        "UPDATE notes SET body = 'Zo\u00eb' WHERE id = 3",
        ["id=3"],
    ),
    "a failed DELETE": (
        DELETE,
        "IF OLD.id = 4 THEN RETURN NULL; END IF; RETURN OLD;",
        "DELETE FROM notes WHERE id = 4",
        ["id=4"],
    ),
    "the wrong row is modified": (
        INSERT,
        """IF NEW.id = 1 THEN UPDATE notes SET body = NEW.body WHERE id = 2; NEW.body := 'note 1'; END IF;
        RETURN NEW;""",
        "UPDATE notes SET body = 'for the first one' WHERE id = 1",
        ["id=1", "id=2"],
    ),
}

pytestmark = pytest.mark.long


def copied(source: Database, target: Database, *verify: str) -> Settings:
    fill(source, 30)
    settings = Settings("fault", source.url, target.url, consistency="table", verify=verify)
    Transfer(settings).run(until_caught_up=True)
    return settings


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_ends_and_the_cutover_is_undone(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database, fault: str
) -> None:
    event, body, change, wrong = FAULTS[fault]
    settings = copied(mariadb_db, postgres_db, "inline")
    postgres_db.execute(BROKEN.format(event=event, body=body))
    mariadb_db.execute(change)
    with pytest.raises(NotProven) as found:
        Transfer(settings).run(until_caught_up=True)
    assert wrong[0] in str(found.value), "the row that was changed is looked at again"
    with application(mariadb_db) as app:
        report = cut_over(settings, replace(HOW, verify=("inline",)))
        assert report.state == "rolled-back"
        assert all(row in report.reason for row in wrong), "all rows are compared before a cutover"
        assert app.can_write()


def test_an_insert_that_failed_takes_its_batch_back(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    """A load counts what it wrote, so that no verifier is needed."""
    settings = copied(mariadb_db, postgres_db)
    body = "IF NEW.id = 100 THEN RETURN NULL; END IF; RETURN NEW;"
    postgres_db.execute(BROKEN.format(event=INSERT, body=body))
    mariadb_db.execute("INSERT INTO notes VALUES (100, 'x'), (101, 'y')")
    with pytest.raises(CannotFinish, match="notes"):
        Transfer(settings).run(until_caught_up=True)
    assert postgres_db.execute("SELECT id FROM notes WHERE id >= 100") == []
    postgres_db.execute("DROP TRIGGER broken ON notes")
    Transfer(settings).run(until_caught_up=True)
    assert postgres_db.execute("SELECT id FROM notes WHERE id >= 100 ORDER BY id") == [
        (100,),
        (101,),
    ]

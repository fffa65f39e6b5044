"""What a task does to rows on their way is done before they are compared: filters, routes, masks, added columns."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from tests.validate.watching import begun, copied, validating
from truecopy.metastore.validation_errors import RESOLVED
from truecopy.metastore.validations import Validations
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.continuous.repair import apply_repair, plan_repair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

KEY = "a key that nobody knows"
RULES: dict[str, Any] = {
    "routes": {"orders": {"table": "sales", "columns": {"cust": "customer"}}},
    "mask-key": KEY,
    "transformers": {
        "orders": {
            "filter": "state <> 'draft'",
            "mask": ["email"],
            "drop": ["note"],
            "add": {
                "total": {"sql": "CAST(price * pieces AS DECIMAL(12,2))", "type": "decimal(2)"}
            },
        }
    },
}


@pytest.mark.long
def test_rows_are_compared_as_the_task_makes_them(
    spark: SparkSession, mariadb_db: Database, target: Database, task: str
) -> None:
    source = mariadb_db
    document = {"task": task, "source": source.url, "target": target.url, **RULES}
    settings = transfer_settings(parse_task(document))
    source.execute(
        """CREATE TABLE orders (id INT PRIMARY KEY, cust INT, email VARCHAR(80), price DECIMAL(10,2),
        pieces INT NOT NULL, state VARCHAR(10) NOT NULL, note TEXT)"""
    )
    source.execute(
        "INSERT INTO orders SELECT seq, 7, CONCAT('u', seq, '@x'), seq / 4, 3, 'open', 'n' FROM seq_1_to_20"
    )
    source.execute("UPDATE orders SET state = 'draft' WHERE id > 15")
    begun(settings)
    source.execute("UPDATE orders SET pieces = pieces + 1, note = 'other' WHERE id <= 10")
    source.execute("UPDATE orders SET state = 'draft' WHERE id IN (11, 12)")  # leave the target
    source.execute("UPDATE orders SET state = 'paid' WHERE id IN (16, 17)")  # come there
    source.execute("UPDATE orders SET pieces = 9 WHERE id = 18")  # is not there, and was not
    source.execute("INSERT INTO orders VALUES (30, 8, 'new@x', 1.5, 2, 'open', NULL)")
    copied(settings)
    masked = hmac.new(KEY.encode(), b"new@x", hashlib.sha256).hexdigest()
    assert target.execute("SELECT email FROM sales WHERE id = 30") == [(masked,)]
    target.execute("UPDATE sales SET customer = 0 WHERE id = 1")
    target.execute("UPDATE sales SET email = 'u2@x' WHERE id = 2")
    target.execute("UPDATE sales SET total = total + 0.01 WHERE id = 3")
    target.execute("DELETE FROM sales WHERE id = 16")
    target.execute("INSERT INTO sales (id, pieces, state) VALUES (11, 3, 'draft')")
    with validating(settings, row_error_delay=1.0) as watched:
        errors = watched.until_errors(5)
        watched.until_settled()
        found = {int(e.key["id"] or 0): (e.kind, tuple(e.columns)) for e in watched.errors}
        assert found == {
            1: ("differs", ("customer",)),
            2: ("differs", ("email",)),
            3: ("differs", ("total",)),
            11: ("extra", ()),
            16: ("missing", ()),
        }
        assert "u2@x" not in str(next(e.source for e in errors if e.key["id"] == "2"))
        apply_repair(settings, plan_repair(settings, errors, spark))
        Validations().errors.recheck(task, None)
        watched.until(lambda: not watched.new, "no errors")
        assert {error.status for error in watched.errors} == {RESOLVED}

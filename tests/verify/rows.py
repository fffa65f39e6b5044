"""Tables of many simple rows, filled inside the server."""

from __future__ import annotations

from tests.servers import Database

DEFINITION = "CREATE TABLE {name} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c VARCHAR(60) NOT NULL, d DOUBLE)"


def fill(database: Database, rows: int, name: str = "items", first: int = 1) -> None:
    """A table whose rows are a function of their number: the same on every server."""
    database.execute(DEFINITION.format(name=name))
    database.execute(
        f"INSERT INTO {name} SELECT seq, seq * 7919 % 100003, CONCAT('row ', seq, ' ', MD5(seq)), seq / 7"
        f" FROM seq_{first}_to_{first + rows - 1}"
    )
    database.execute(f"ANALYZE TABLE {name}")

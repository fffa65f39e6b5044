"""Long runs with random damage: `make soak`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

import truecopy
from tests.servers import Database

MINUTES = 10


@pytest.mark.slow
@pytest.mark.timeout(60 * (MINUTES + 5))
def test_random_damage_is_found_exactly(
    mariadb_db: Database,
    postgres_db: Database,
    record_property: Callable[[str, object], None],
) -> None:
    """Rows of random keys, random damage, random chunks: found is what was planted, every time."""
    seed = random.randrange(2**32)
    record_property("seed", seed)
    dice = random.Random(seed)
    end = time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        keys = dice.sample(range(-(10 ** dice.randrange(4, 18)), 10**18), dice.randrange(1, 3000))
        rows = {key: dice.choice(["", "a", "é🙂", "x" * 200, None]) for key in keys}
        for database in (mariadb_db, postgres_db):
            database.execute("DROP TABLE IF EXISTS t")
            database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(300))")
            database.executemany("INSERT INTO t VALUES (%s, %s)", list(rows.items()))
        hurt = dice.sample(keys, dice.randrange(0, min(len(keys), 50)))
        missing, changed = hurt[::2], hurt[1::2]
        for key in missing:
            postgres_db.execute("DELETE FROM t WHERE id = %s", (key,))
        for key in changed:
            postgres_db.execute("UPDATE t SET v = COALESCE(v, '') || ' ' WHERE id = %s", (key,))
        report = truecopy.verify(
            mariadb_db.url,
            postgres_db.url,
            chunk_rows=dice.choice([10, 100, 1000, 100_000]),
            fresh=True,
        )
        found = {(d.kind, d.key[0]) for d in report.differences(report.tables[0])}
        expected = {("missing", str(key)) for key in missing} | {
            ("differs", str(key)) for key in changed
        }
        assert found == expected, (seed, report.verdict)
        assert report.tables[0].rows_compared == len(keys)

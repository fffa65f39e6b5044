"""With `consistency: table`, whoever reads the target sees only states that the source's table had."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.servers import Database
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import TABLE, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCOUNTS, MOVES = 50, 400


def test_a_reader_sees_only_states_that_the_source_had(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Money is moved between accounts: in every state of the source the sum is the same, and so is the count."""
    mariadb_db.execute("CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL)")
    mariadb_db.execute(f"INSERT INTO accounts SELECT seq, 100 FROM seq_1_to_{ACCOUNTS}")
    asked = Settings("move", mariadb_db.url, second_mariadb_db.url, consistency=TABLE)
    Transfer(asked).run(until_caught_up=True)
    stop, seen = threading.Event(), set[tuple[int, int]]()

    def read() -> None:
        connection = second_mariadb_db.connect()
        with connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("SELECT COUNT(*), CAST(SUM(balance) AS SIGNED) FROM accounts")
                seen.add(cursor.fetchone())
                connection.commit()
        connection.close()

    reader = threading.Thread(target=read)
    reader.start()
    connection = mariadb_db.connect()
    with connection.cursor() as cursor:
        for number in range(MOVES):
            one, other = number % ACCOUNTS + 1, number * 7 % ACCOUNTS + 1
            cursor.execute("BEGIN")
            cursor.execute("UPDATE accounts SET balance = balance - 1 WHERE id = %s", (one,))
            cursor.execute("UPDATE accounts SET balance = balance + 1 WHERE id = %s", (other,))
            cursor.execute("COMMIT")
            if number == MOVES // 2:
                Transfer(asked).run(until_caught_up=True)
    connection.close()
    Transfer(asked).run(until_caught_up=True)
    stop.set()
    reader.join()
    assert seen == {(ACCOUNTS, 100 * ACCOUNTS)}
    query = "SELECT id, balance FROM accounts ORDER BY id"
    assert second_mariadb_db.execute(query) == mariadb_db.execute(query)

"""What other users of the machine can see of a command."""

import psutil

from tests.program import start
from tests.servers import Database


def test_a_password_in_a_url_leaves_the_list_of_processes(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE items (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO items VALUES (1)")
    process = start("stream", mariadb_db.url, "--from", "start", "--json")
    assert process.stdout is not None
    process.stdout.readline()
    running = psutil.Process(process.pid)
    shown = [" ".join(one.cmdline()) for one in (running, *running.children(recursive=True))]
    assert "stream" in shown[0]
    assert ":***@" in shown[0]
    assert not any(mariadb_db.server.password in line for line in shown)

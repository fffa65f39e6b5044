"""Writes transactions of one row at a steady rate, each with the time just before its commit.

python -m bench.writer URL RATE SECONDS
"""

from __future__ import annotations

import sys
import time

import pymysql

from truecopy.model.endpoint import parse_endpoint

FIRST = 10_000_000


def main() -> None:
    url, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    endpoint = parse_endpoint(url)
    connection = pymysql.connect(
        host=endpoint.host,
        port=endpoint.port or 3306,
        user=endpoint.user,
        password=endpoint.password,
        database=endpoint.database,
        autocommit=True,
    )
    begun = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(int(rate * seconds)):
            ahead = begun + number / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            row = FIRST + number, number, "c" * 119, f"{time.time():.6f}"
            cursor.execute("INSERT INTO t VALUES (%s, %s, %s, %s)", row)
    connection.close()


if __name__ == "__main__":
    main()

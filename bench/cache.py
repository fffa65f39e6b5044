"""How fast a cache is invalidated: changes a second from a backlog, and the time from a commit to Redis.

    python -m bench.cache [--json] [--rows N]

What the figures mean: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import truecopy.client
from bench.figures import Figure, print_figures
from bench.logs import SINGLE, Log, filled_log
from bench.writer import FIRST
from tests.cache.servers import private_redis
from truecopy.cache.entry import Entry
from truecopy.cache.floor import BUCKETS
from truecopy.cache.follow import Following
from truecopy.cache.invalidation import ENTRY
from truecopy.cache.objects import Objects
from truecopy.cache.readthrough import ReadThrough
from truecopy.cache.store import Cache, Held, Write, open_cache
from truecopy.model.position import BEGINNING
from truecopy.model.token import EventToken
from truecopy.stream.request import Request

OBJECTS = Objects({"t": ("t:{id}",)})
_RATE = 1000
_LIVE_SECONDS = 20
_READS = 2000
_SHARD = "shop"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.cache", description="Measures invalidation.")
    parser.add_argument("--rows", type=int, default=100_000, metavar="N", help="default: 100,000")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as state:
        os.environ["TRUECOPY_STATE"] = state
        print_figures(measure(chosen.rows), chosen.json)


def measure(rows: int) -> list[Figure]:
    say(f"filling a server: {rows:,} transactions of one row")
    with filled_log(SINGLE, rows) as log, private_redis("maxmemory 1gb") as url:
        return [*backlog_figures(log, url), *live_figures(log, url), *read_figures(log, url)]


def backlog_figures(log: Log, url: str) -> Iterator[Figure]:
    """Everything in the log, from its first change to the last token in Redis, on one core."""
    cache = open_cache(url)
    fill(cache, log.rows)
    for name in ("clearing-values", "keeping-tokens"):
        with following(log, cache, "start") as work:
            begun = time.monotonic()
            work.run(until_current=True)
            taken = time.monotonic() - begun
            done = work.counts.stored if name == "clearing-values" else work.counts.kept
            assert done == log.rows, work.counts
        say(f"{name}: {log.rows / taken:,.0f} changes/s")
        yield Figure(f"cache-{name}-per-second", log.rows / taken)
    cache.close()


def live_figures(log: Log, url: str) -> Iterator[Figure]:
    """From the moment before a commit to the moment when its token is in Redis."""
    noting = Noting(open_cache(url))
    stop = threading.Event()
    with following(log, noting, "current") as work:
        thread = threading.Thread(target=work.run, args=(stop,))
        thread.start()
        command = [sys.executable, "-m", "bench.writer", log.database.url, str(_RATE)]
        subprocess.run([*command, str(_LIVE_SECONDS)], check=True)
        time.sleep(1)
        stop.set()
        thread.join()
    noting.close()
    written = log.database.execute(f"SELECT id, pad FROM t WHERE id >= {FIRST}")
    delays = [noting.put_at[f"{ENTRY}t:{row}"] - float(at) for row, at in written]
    yield Figure("cache-live-invalidations-per-second", len(delays) / _LIVE_SECONDS)
    percentiles = statistics.quantiles(delays, n=100)
    yield Figure("cache-live-ms-p50", percentiles[49] * 1000)
    yield Figure("cache-live-ms-p99", percentiles[98] * 1000)


def read_figures(log: Log, url: str) -> Iterator[Figure]:
    """Reads by one thread: of what is cached, and of what is not, which is asked for and put."""
    cache = open_cache(url)
    cache.clear()
    with truecopy.client.connect(log.database.url, shard=_SHARD) as client:
        reader = ReadThrough(client, cache)
        sql = "SELECT k, c FROM t WHERE id = %s"
        for name in ("miss", "hit"):
            begun = time.monotonic()
            got = [reader.get(f"t:{row}", sql, (row,)) for row in range(1, _READS + 1)]
            taken = time.monotonic() - begun
            assert sum(one.hit for one in got) == (_READS if name == "hit" else 0)
            yield Figure(f"cache-{name}-ms", taken / _READS * 1000)
    cache.close()


class Noting:
    """A cache that remembers when each key was stored last."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.put_at: dict[str, float] = {}

    def get(self, keys: Sequence[str]) -> list[Held | None]:
        return self._cache.get(keys)

    def put(self, writes: Sequence[Write]) -> list[bool]:
        done = self._cache.put(writes)
        now = time.time()
        self.put_at.update({write.key: now for write in writes})
        return done

    def clear(self) -> None:
        self._cache.clear()

    def close(self) -> None:
        self._cache.close()


def fill(cache: Cache, rows: int) -> None:
    """A cache that holds every row, and every floor."""
    old = EventToken(0, _SHARD, BEGINNING)
    value = Entry(old, b"v" * 200).pack()
    for first in range(1, rows + 1, 10_000):
        last = min(first + 10_000, rows + 1)
        cache.put([Write(f"{ENTRY}t:{row}", value) for row in range(first, last)])
    cache.put([Write(f"floor:{number}", str(old).encode()) for number in range(BUCKETS)])


@contextmanager
def following(log: Log, cache: Cache, start: str) -> Iterator[Following]:
    request = Request(log.database.url, shard=_SHARD, tables=("t",), keys_only=True, wait=0.05)
    with Following(request, cache, OBJECTS, start) as work:
        yield work


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

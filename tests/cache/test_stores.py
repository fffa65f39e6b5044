"""What a cache must do, of every kind: compare and store in one step, never confuse one content with another."""

from __future__ import annotations

import threading

import pytest

from truecopy.cache.store import Cache, Write, open_cache
from truecopy.model.errors import CannotFinish, UsageError


def test_stores_only_where_nothing_is(cache: Cache) -> None:
    assert cache.get(["a", "b"]) == [None, None]
    assert cache.put([Write("a", b"1"), Write("b", b"2"), Write("a", b"3")]) == [True, True, False]
    found = cache.get(["b", "missing", "a"])
    assert [held and held.content for held in found] == [b"2", None, b"1"]


def test_stores_only_over_the_version_that_was_read(cache: Cache) -> None:
    cache.put([Write("a", b"1")])
    (first,) = cache.get(["a"])
    assert first is not None
    assert cache.put([Write("a", b"2", first.version)]) == [True]
    assert cache.put([Write("a", b"3", first.version)]) == [False]
    (second,) = cache.get(["a"])
    assert second is not None
    assert second.content == b"2"
    # The same content again is another version.
    assert cache.put([Write("a", b"1", second.version)]) == [True]
    assert cache.put([Write("a", b"4", first.version)]) == [False]


def test_does_not_store_over_what_is_gone(cache: Cache) -> None:
    cache.put([Write("a", b"1")])
    (held,) = cache.get(["a"])
    assert held is not None
    cache.clear()
    assert cache.put([Write("a", b"2", held.version)]) == [False]
    cache.put([Write("a", b"1")])
    assert cache.put([Write("a", b"2", held.version)]) == [False]
    assert cache.get(["a"])[0] is not None


def test_takes_keys_and_contents_of_any_kind(cache: Cache) -> None:
    keys = ["with space", "ünïcode ☃", "x" * 1000, "line\nbreak", "plain"]
    content = bytes(range(256)) * 100
    assert cache.put([Write(key, content + key.encode()) for key in keys]) == [True] * len(keys)
    found = cache.get(keys)
    assert [held and held.content for held in found] == [content + key.encode() for key in keys]


def test_many_at_once(cache: Cache) -> None:
    keys = [f"k{number}" for number in range(2000)]
    assert all(cache.put([Write(key, b"1") for key in keys]))
    found = cache.get(keys)
    odd = [held.version if number % 2 and held else None for number, held in enumerate(found)]
    done = cache.put([Write(key, b"2", v) for key, v in zip(keys, odd, strict=True)])
    assert done == [bool(number % 2) for number in range(2000)]


def test_only_one_of_many_threads_stores(cache: Cache) -> None:
    cache.put([Write("n", b"0")])

    def count_up() -> None:
        for _ in range(50):
            while True:
                (held,) = cache.get(["n"])
                assert held is not None
                if cache.put([Write("n", b"%d" % (int(held.content) + 1), held.version)])[0]:
                    break

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (held,) = cache.get(["n"])
    assert held is not None
    assert held.content == b"200"


def test_the_one_in_the_process_forgets_what_was_used_longest_ago() -> None:
    cache = open_cache("memory://?most=2")
    cache.put([Write("a", b"1"), Write("b", b"2")])
    cache.get(["a"])
    cache.put([Write("c", b"3")])
    assert [held and held.content for held in cache.get(["a", "b", "c"])] == [b"1", None, b"3"]


def test_redis_leaves_keys_of_others_alone(redis_url: str) -> None:
    mine, other = open_cache(f"{redis_url}?prefix=a*:"), open_cache(f"{redis_url}?prefix=ab:")
    mine.put([Write("x", b"1")])
    other.put([Write("x", b"2")])
    mine.clear()
    assert mine.get(["x"]) == [None]
    assert other.get(["x"])[0] is not None
    other.clear()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "memcached://127.0.0.1:1"])
def test_a_cache_that_does_not_answer_is_one_line(url: str) -> None:
    with pytest.raises(CannotFinish, match=r"127\.0\.0\.1:1.* does not answer"):
        open_cache(url).get(["a"])


def test_an_unknown_cache_is_refused() -> None:
    with pytest.raises(UsageError, match="names no cache; known are memcached://"):
        open_cache("disk://x")

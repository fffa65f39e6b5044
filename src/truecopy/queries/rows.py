"""The differing rows themselves: a sample, found by digests of buckets, so that no more rows travel than must.

Rows are put into buckets by the hash of their key, where there is one, else of the whole row; both
engines give the digest of each bucket, and only buckets that differ are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from truecopy.queries.checksums import exact_hash, read_sum
from truecopy.queries.leaves import Leaf, inner_select
from truecopy.queries.pairing import Pairing, Place, Row
from truecopy.queries.results import LiveResult, Plan
from truecopy.queries.settings import Settings
from truecopy.queries.spread import spread_differences
from truecopy.queries.verdict import close, rounding

ROWS_PER_BUCKET = 200
MOST_BUCKETS = 4096
KEY_CANDIDATES = 8
SPREAD = 500
"""How many times the rows that are compared here Spark gets at once."""
_NONE = (0, 0, 0)

Digest = tuple[int, int, int]
"""Of a bucket: its different rows, all its rows, and the sum of their fingerprints."""


def moved_floats(
    control: LiveResult, test: LiveResult, plan: Plan, rows: int, settings: Settings
) -> set[int]:
    """Floats whose sums agree over all rows, but not over those with the same other columns."""
    leaves = control.leaves(plan)
    floats = [at for at, leaf in enumerate(leaves) if leaf.number]
    if not rows or not floats or len(floats) == len(leaves):
        return set()
    one, other = (_float_buckets(side, plan, MOST_BUCKETS) for side in (control, test))
    moved = set()
    for bucket, (count, sums) in one.items():
        others = other.get(bucket)
        if others is None:
            continue
        for place, at in enumerate(floats):
            a, b = sums[place], others[1][place]
            bound = rounding(count, a[1], b[1])
            if not close(a[0], b[0], settings, bound) or not close(a[1], b[1], settings):
                moved.add(at)
    return moved


def differing_rows(
    control: LiveResult,
    test: LiveResult,
    plan: Plan,
    rows: tuple[int, int],
    settings: Settings,
    given_key: tuple[str, ...],
) -> list[dict[str, Any]]:
    """A sample of rows that only one side has, or whose columns differ where a key pairs them.

    Few rows are compared here; where buckets that differ hold more than `settings.driver_rows`, by Spark.
    """
    found: list[dict[str, Any]] = []
    if not settings.sample:
        return found
    key = _key(control, test, plan, rows, given_key)
    places = tuple(Place(leaf.label, leaf.kind, bool(leaf.number)) for leaf in control.leaves(plan))
    pairing = Pairing(places, tuple(key), settings)
    buckets = _bucket_count(max(rows))
    digests = [_digests(side, plan, key, buckets) for side in (control, test)]
    reads = tuple(partial(_rows_sql, side, plan, key, buckets) for side in (control, test))
    for chosen, size in _waves(digests, settings.driver_rows):
        left = settings.sample - len(found)
        if left <= 0:
            break
        if size > settings.driver_rows and control.spreads and test.spreads:
            sides = (control, test)
            found += spread_differences(sides, (reads[0], reads[1]), chosen, pairing, left)
        else:
            mine, theirs = (
                _read(side, read(chosen)) for side, read in zip((control, test), reads, strict=True)
            )
            found += islice(pairing.differences(mine, theirs), left)
    return found


def _waves(digests: Sequence[Mapping[int, Digest]], rows: int) -> Iterator[tuple[list[int], int]]:
    """Buckets that differ, with how many different rows they hold: few at first, many where those tell too little."""
    one, other = digests
    sizes = {
        bucket: max(one.get(bucket, _NONE)[0], other.get(bucket, _NONE)[0])
        for bucket in sorted(one.keys() | other.keys())
        if one.get(bucket) != other.get(bucket)
    }
    chosen: list[int] = []
    total, limit = 0, rows
    for bucket, size in sizes.items():
        if chosen and total + size > limit:
            yield chosen, total
            chosen, total, limit = [], 0, rows * SPREAD
        chosen.append(bucket)
        total += size
    if chosen:
        yield chosen, total


def _key(
    control: LiveResult, test: LiveResult, plan: Plan, rows: tuple[int, int], given: tuple[str, ...]
) -> list[int]:
    """Leaves that tell rows apart on both sides: those that the user named, or one that is unique."""
    leaves = control.leaves(plan)
    if given:
        wanted = {name.lower() for name in given}
        return [i for i, leaf in enumerate(leaves) if leaf.label.lower() in wanted]
    candidates = [i for i, leaf in enumerate(leaves) if not leaf.number and not leaf.is_document][
        :KEY_CANDIDATES
    ]
    if not candidates or not min(rows):
        return []
    unique = set(candidates)
    for side, count in zip((control, test), rows, strict=True):
        own = side.leaves(plan)
        named = ", ".join(f"{own[i].text} AS k{i}" for i in candidates)
        wanted_sql = ", ".join(f"COUNT(DISTINCT k{i})" for i in candidates)
        (found,) = side.fetch(f"SELECT {wanted_sql} FROM (SELECT {named} FROM {_inner(side)}) AS k")
        unique &= {i for i, number in zip(candidates, found, strict=True) if int(number) == count}
    return sorted(unique)[:1]


def _digests(side: LiveResult, plan: Plan, key: Sequence[int], buckets: int) -> dict[int, Digest]:
    texts, leaves = side.texts, side.leaves(plan)
    bucket = texts.bucket("h", buckets)
    hashes = f"{_placed(side, leaves, key)} AS h, {_whole(side, leaves)} AS r"
    rows = side.fetch(
        f"SELECT {bucket}, COUNT(DISTINCT r), COUNT(*), {texts.total('r')} FROM"
        f" (SELECT {hashes} FROM {_inner(side)}) AS b GROUP BY {bucket}"
    )
    return {int(number): (int(each), int(count), int(total)) for number, each, count, total in rows}


def _float_buckets(
    side: LiveResult, plan: Plan, buckets: int
) -> dict[int, tuple[int, list[tuple[float, float]]]]:
    texts, leaves = side.texts, side.leaves(plan)
    numbers = [leaf.number for leaf in leaves if leaf.number]
    named = ", ".join(f"{_finite(side, x)} AS f{i}" for i, x in enumerate(numbers))
    sums = ", ".join(f"SUM(f{i}), SUM(ABS(f{i}))" for i in range(len(numbers)))
    bucket = texts.bucket("h", buckets)
    rows = side.fetch(
        f"SELECT {bucket}, COUNT(*), {sums} FROM"
        f" (SELECT {_placed(side, leaves, ())} AS h, {named} FROM {_inner(side)}) AS b"
        f" GROUP BY {bucket}"
    )
    return {
        int(row[0]): (
            int(row[1]),
            [(read_sum(row[i]), read_sum(row[i + 1])) for i in range(2, len(row), 2)],
        )
        for row in rows
    }


def _rows_sql(
    side: LiveResult, plan: Plan, key: Sequence[int], buckets: int, chosen: Sequence[int]
) -> str:
    """The rows of some buckets, each once: its place, its fingerprint, how often it is there, and its texts."""
    leaves = side.leaves(plan)
    # All texts of one fingerprint are the same; to group by them would be to ask a collation.
    names = ", ".join(f"MIN(t{i}) AS t{i}" for i in range(len(leaves)))
    texts = ", ".join(f"{leaf.sorted or leaf.text} AS t{i}" for i, leaf in enumerate(leaves))
    numbers = ", ".join(str(number) for number in chosen)
    inner = (
        f"SELECT {texts}, {_placed(side, leaves, key)} AS h, {_whole(side, leaves)} AS r"
        f" FROM {_inner(side)}"
    )
    return (
        f"SELECT h, r, COUNT(*) AS n, {names} FROM ({inner}) AS b"
        f" WHERE {side.texts.bucket('h', buckets)} IN ({numbers}) GROUP BY h, r"
    )


def _read(side: LiveResult, statement: str) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for _, _, count, *texts in side.fetch(statement):
        found[tuple(None if text is None else str(text) for text in texts)] += int(count)
    return found


def _placed(side: LiveResult, leaves: Sequence[Leaf], key: Sequence[int]) -> str:
    """What a row's bucket follows from: its key, or all that is compared exactly but documents."""
    if not key:
        return exact_hash(side.texts, leaves, unordered=True, documents=False)
    return side.texts.row_hash([leaves[i].text for i in key], [leaves[i].free for i in key])


def _whole(side: LiveResult, leaves: Sequence[Leaf]) -> str:
    return side.texts.row_hash(
        [leaf.sorted or leaf.text for leaf in leaves],
        [leaf.free or bool(leaf.number) for leaf in leaves],
    )


def _finite(side: LiveResult, x: str) -> str:
    return f"CASE WHEN {' OR '.join(side.texts.special(x))} THEN NULL ELSE {x} END"


def _inner(side: LiveResult) -> str:
    return inner_select(side.texts, side.columns, side.query)


def _bucket_count(rows: int) -> int:
    return max(1, min(MOST_BUCKETS, rows // ROWS_PER_BUCKET))

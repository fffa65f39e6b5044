"""The differing rows themselves: a sample, found by digests of buckets, so that only few rows travel.

Rows are put into buckets by the hash of their key, where there is one, else of the whole row; both
engines give the digest of each bucket, and only buckets that differ are read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from truecopy.model.text import readable_text
from truecopy.queries.checksums import FloatSums, exact_hash, read_sum
from truecopy.queries.leaves import Leaf, inner_select
from truecopy.queries.results import LiveResult, Plan
from truecopy.queries.settings import Settings
from truecopy.queries.verdict import close, rounding

ROWS_PER_BUCKET = 200
MOST_BUCKETS = 4096
BUCKETS_READ = 8
KEY_CANDIDATES = 8

Row = tuple[str | None, ...]


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
            bound = rounding(count, FloatSums(*a, 0, 0, 0), FloatSums(*b, 0, 0, 0))
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
) -> Iterator[dict[str, Any]]:
    """A sample of rows that only one side has, or whose columns differ where a key pairs them."""
    if not settings.sample:
        return
    leaves = control.leaves(plan)
    key = _key(control, test, plan, rows, given_key)
    buckets = _bucket_count(max(rows))
    one, other = (_digests(side, plan, key, buckets) for side in (control, test))
    differ = sorted(b for b in one.keys() | other.keys() if one.get(b) != other.get(b))
    left = settings.sample
    for at in range(0, len(differ), BUCKETS_READ):
        chosen = differ[at : at + BUCKETS_READ]
        mine_read, theirs_read = (
            _read(side, plan, key, buckets, chosen) for side in (control, test)
        )
        pairs = (
            _by_key(mine_read, theirs_read, key) if key else _by_multiset(mine_read, theirs_read)
        )
        for mine, theirs in pairs:
            found = _described(mine, theirs, leaves, key, settings)
            if found is None:
                continue
            yield found
            left -= 1
            if left <= 0:
                return


def _described(
    control: Row | None,
    test: Row | None,
    leaves: Sequence[Leaf],
    key: Sequence[int],
    settings: Settings,
) -> dict[str, Any] | None:
    def shown(row: Row, places: Sequence[int]) -> dict[str, str | None]:
        return {leaves[i].label: readable_text(row[i], leaves[i].kind) for i in places}

    everything = range(len(leaves))
    if control is not None and test is not None:
        columns = [i for i in everything if not _equal(control[i], test[i], leaves[i], settings)]
        if not columns:
            return None
        return {
            "kind": "differs",
            "key": shown(control, key),
            "columns": [leaves[i].label for i in columns],
            "control": shown(control, columns),
            "test": shown(test, columns),
        }
    row = control if control is not None else test
    assert row is not None
    kind, side = ("missing", "control") if test is None else ("extra", "test")
    return {"kind": kind, "key": shown(row, key), side: shown(row, everything)}


def _equal(control: str | None, test: str | None, leaf: Leaf, settings: Settings) -> bool:
    if control == test or not leaf.number or control is None or test is None:
        return control == test
    try:
        a, b = (float(readable_text(text, leaf.kind) or "nan") for text in (control, test))
    except ValueError:
        return False
    return close(a, b, settings)


def _by_key(
    control: list[Row], test: list[Row], key: Sequence[int]
) -> Iterator[tuple[Row | None, Row | None]]:
    def keyed(rows: list[Row]) -> dict[Row, list[Row]]:
        found: dict[Row, list[Row]] = defaultdict(list)
        for row in rows:
            found[tuple(row[i] for i in key)].append(row)
        return found

    one, other = keyed(control), keyed(test)
    for name in sorted(one.keys() | other.keys(), key=str):
        mine, theirs = one.get(name, []), other.get(name, [])
        yield from zip(mine, theirs, strict=False)
        shared = min(len(mine), len(theirs))
        yield from ((row, None) for row in mine[shared:])
        yield from ((None, row) for row in theirs[shared:])


def _by_multiset(control: list[Row], test: list[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    one, other = Counter(control), Counter(test)
    yield from ((row, None) for row in (one - other).elements())
    yield from ((None, row) for row in (other - one).elements())


def _key(
    control: LiveResult, test: LiveResult, plan: Plan, rows: tuple[int, int], given: tuple[str, ...]
) -> list[int]:
    """Leaves that tell rows apart on both sides: those that the user named, or one that is unique."""
    leaves = control.leaves(plan)
    if given:
        wanted = {name.lower() for name in given}
        return [i for i, leaf in enumerate(leaves) if leaf.label.lower() in wanted]
    candidates = [i for i, leaf in enumerate(leaves) if not leaf.number][:KEY_CANDIDATES]
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


def _digests(
    side: LiveResult, plan: Plan, key: Sequence[int], buckets: int
) -> dict[int, tuple[int, int]]:
    texts, leaves = side.texts, side.leaves(plan)
    whole = texts.row_hash(
        [leaf.sorted or leaf.text for leaf in leaves],
        [leaf.free or bool(leaf.number) for leaf in leaves],
    )
    bucket = texts.bucket("h", buckets)
    rows = side.fetch(
        f"SELECT {bucket}, COUNT(*), {texts.total('r')} FROM"
        f" (SELECT {_placed(side, leaves, key)} AS h, {whole} AS r FROM {_inner(side)}) AS b GROUP BY {bucket}"
    )
    return {int(number): (int(count), int(total)) for number, count, total in rows}


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
        f" (SELECT {exact_hash(texts, leaves, unordered=True)} AS h, {named} FROM {_inner(side)}) AS b"
        f" GROUP BY {bucket}"
    )
    return {
        int(row[0]): (
            int(row[1]),
            [(read_sum(row[i]), read_sum(row[i + 1])) for i in range(2, len(row), 2)],
        )
        for row in rows
    }


def _read(
    side: LiveResult, plan: Plan, key: Sequence[int], buckets: int, chosen: Sequence[int]
) -> list[Row]:
    leaves = side.leaves(plan)
    names = ", ".join(f"t{i}" for i in range(len(leaves)))
    texts = ", ".join(f"{leaf.sorted or leaf.text} AS t{i}" for i, leaf in enumerate(leaves))
    numbers = ", ".join(str(number) for number in chosen)
    rows = side.fetch(
        f"SELECT {names} FROM (SELECT {texts}, {_placed(side, leaves, key)} AS h FROM {_inner(side)}) AS b"
        f" WHERE {side.texts.bucket('h', buckets)} IN ({numbers})"
    )
    return [tuple(None if value is None else str(value) for value in row) for row in rows]


def _placed(side: LiveResult, leaves: Sequence[Leaf], key: Sequence[int]) -> str:
    """What a row's bucket follows from: its key, or all that is compared exactly."""
    if not key:
        return exact_hash(side.texts, leaves, unordered=True)
    return side.texts.row_hash([leaves[i].text for i in key], [leaves[i].free for i in key])


def _finite(side: LiveResult, x: str) -> str:
    return f"CASE WHEN {' OR '.join(side.texts.special(x))} THEN NULL ELSE {x} END"


def _inner(side: LiveResult) -> str:
    return inner_select(side.texts, side.columns, side.query)


def _bucket_count(rows: int) -> int:
    return max(1, min(MOST_BUCKETS, rows // ROWS_PER_BUCKET))

"""SQL for readers of a log: of each table what it is now, and what happened to it.

The queries have one shape wherever a log is kept. `Arrays` say what an engine says differently, a `Source` where the
events and rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from truecopy.changelog.eras import Era
from truecopy.changelog.facts import Base, BaseTable, Trait
from truecopy.changelog.log import Log
from truecopy.changelog.view_names import CURRENT, HISTORY
from truecopy.engines.array_views import Arrays
from truecopy.model.change import DELETE, TRUNCATE, Definition
from truecopy.model.types import Decimal, Integer, Type

LOG_COLUMNS = (
    "batch",
    "commit_order",
    "seq",
    "era",
    "kind",
    "key",
    "after",
    "unchanged",
    "schema_id",
)
"""What `Source.log` selects; base rows are of the kind `snapshot`, before all events."""
HISTORY_COLUMNS = (
    *("kind", "committed_at", "shard", "position", "txn", "batch", "commit_order", "seq"),
    *("key", "after", "schema_id"),
)
"""What `Source.history` has."""

_ORDER = ("batch", "commit_order", "seq")


class Source(Protocol):
    """Where the events and rows of a log are."""

    @property
    def reader(self) -> Arrays: ...

    def history(self, table: str) -> str | None:
        """What to select a table's events from, if there are any."""
        ...

    def log(self, table: str, base: Base) -> list[str]:
        """The queries whose rows are the base's rows, and the events after it."""
        ...


@dataclass(frozen=True)
class View:
    """A query for readers; `kind` is CURRENT or HISTORY."""

    table: str
    kind: str
    query: str


def make_views(log: Log, make: Callable[[], bool]) -> None:
    """Lets views be made of what the log has by now, and notes it if they could be.

    Once more where that has changed meanwhile: another process may have made newer views, which these have replaced.
    """
    while True:
        last, facts = log.last, _facts(log)
        is_done = make()
        if _facts(log) == facts:
            break
    if is_done:
        log.note_shown(last)


def _facts(log: Log) -> tuple[object, ...]:
    return log.traits(), log.eras(), log.bases(), log.tables()


def views_of(log: Log, source: Source) -> Iterator[View]:
    """The views of every table that the log has by now."""
    bases, traits, eras = log.bases(), log.traits(), log.eras()
    base = bases[-1] if bases else None
    lines = log.base_tables(base.number) if base is not None else []
    for table in log.tables():
        told = _Told.find(
            log,
            table,
            [one for one in traits if one.table == table],
            [one for one in lines if one.table == table],
            eras,
        )
        if told is None:
            continue
        events = source.history(table)
        if events is not None:
            yield View(table, HISTORY, _history(source.reader, told, events))
        parts = source.log(table, base) if base is not None and told.final.key else []
        if parts:
            yield View(table, CURRENT, _Current(source.reader, told, parts).query)


@dataclass(frozen=True)
class _Told:
    """What a log tells of one table.

    Attributes:
        final: The definition that readers see.
        definitions: Those that rows and events are of, by `schema_id`.
        follows: Of eras that others took over from: those.
        is_partial: Whether values are left out of events that did not change them.
        is_emptied: Whether it was truncated.
    """

    final: Definition
    definitions: dict[str, Definition]
    follows: dict[int, list[int]]
    is_partial: bool
    is_emptied: bool

    @classmethod
    def find(
        cls,
        log: Log,
        table: str,
        traits: Sequence[Trait],
        lines: Sequence[BaseTable],
        eras: Sequence[Era],
    ) -> _Told | None:
        ids = sorted({one.schema_id for one in lines}.union(*(one.schema_ids for one in traits)))
        if not ids:
            return None
        definitions = {one: log.definition(one) for one in ids}
        last = log.latest(table)
        chosen = last if last in definitions else lines[0].schema_id if lines else ids[0]
        follows = {
            era.number: [later.number for later in eras if era.number in later.ancestors]
            for era in eras
        }
        return cls(
            definitions[chosen],
            definitions,
            {era: laters for era, laters in follows.items() if laters},
            any(one.left_out for one in traits),
            any(one.is_emptied for one in traits),
        )


def _history(reader: Arrays, told: _Told, events: str) -> str:
    own = [name for name in HISTORY_COLUMNS if name not in ("key", "after", "schema_id")]
    columns = [
        f"{_typed(reader, _text(reader, told, at), column.type)} AS {reader.quote(column.name)}"
        for at, column in enumerate(told.final.columns)
    ]
    shown = ", ".join(f"{name} AS truecopy_{name}" for name in own)
    return f"SELECT {shown},\n    " + ",\n    ".join(columns) + f"\nFROM {events}"


@dataclass(frozen=True)
class _Current:
    """The last event of each key, in the shard that speaks for it."""

    reader: Arrays
    told: _Told
    parts: Sequence[str]

    @property
    def query(self) -> str:
        quote, final = self.reader.quote, self.told.final
        names = ", ".join(f"v{at} AS {quote(one)}" for at, one in enumerate(final.names))
        steps = [("log", "\n    UNION ALL ".join(self.parts))]
        if self.told.is_emptied:
            steps.append(("emptied", self._emptied()))
        steps.append(("numbered", self._numbered()))
        steps.append(("lasts", self._folded() if self.told.is_partial else self._whole()))
        told = ",\n".join(f"{name} AS (\n    {query})" for name, query in steps)
        return f"WITH {told}\nSELECT {names} FROM {self._of_one_shard()}"

    def _emptied(self) -> str:
        """Of each era, the last time."""
        nth = f"row_number() OVER (PARTITION BY era ORDER BY {_backwards('')}) AS nth"
        return (
            f"SELECT * FROM (SELECT era, {', '.join(_ORDER)}, {nth}\n"
            f"        FROM log WHERE kind = '{TRUNCATE}') AS truncates WHERE nth = 1"
        )

    def _numbered(self) -> str:
        """Rows and events since then, those of each key and era from the last one back."""
        key = self.reader.quote("key")
        same = self.reader.same(f"log.{key}")
        nth = (
            f"row_number() OVER (PARTITION BY {same}, log.era ORDER BY {_backwards('log.')}) AS nth"
        )
        shown = ", ".join(f"log.{name}" for name in ("era", "kind", key, "after", "unchanged"))
        query = f"SELECT {shown}, log.schema_id, {same} AS same,\n        {nth}\n    FROM log"
        of_rows = f"WHERE log.kind <> '{TRUNCATE}'"
        if not self.told.is_emptied:
            return f"{query} {of_rows}"
        mine, then = (", ".join(f"{of}.{one}" for one in _ORDER) for of in ("log", "emptied"))
        return (
            f"{query} LEFT JOIN emptied ON emptied.era = log.era\n"
            f"    {of_rows} AND (emptied.era IS NULL OR ({mine}) > ({then}))"
        )

    def _whole(self) -> str:
        values = [
            f"{_typed(self.reader, _text(self.reader, self.told, at), column.type)} AS v{at}"
            for at, column in enumerate(self.told.final.columns)
        ]
        return f"SELECT era, kind, same, {', '.join(values)}\n    FROM numbered WHERE nth = 1"

    def _folded(self) -> str:
        """Each value of the event that told it last."""
        reader, told, columns = self.reader, self.told, self.told.final.columns
        found, values = [], []
        for at, column in enumerate(columns):
            place = _cases(told, column.name, str)
            has = "false" if place == "NULL" else reader.contains("unchanged", place)
            is_told = f"kind <> '{DELETE}' AND NOT coalesce({has}, false)"
            found.append(f"min(CASE WHEN {is_told} THEN nth END) AS n{at}")
            text = f"max(CASE WHEN nth = n{at} THEN {_text(reader, told, at)} END)"
            values.append(f"{_typed(reader, text, column.type)} AS v{at}")
        return (
            f"SELECT numbered.era, max(CASE WHEN nth = 1 THEN kind END) AS kind, numbered.same,\n"
            f"        {', '.join(values)}\n"
            f"    FROM numbered JOIN (SELECT same, era, {', '.join(found)}\n"
            "        FROM numbered GROUP BY same, era) AS told\n"
            "        ON told.same = numbered.same AND told.era = numbered.era\n"
            "    GROUP BY numbered.same, numbered.era"
        )

    def _of_one_shard(self) -> str:
        """For a row of which several eras speak, those that took over count."""
        is_there = f"kind <> '{DELETE}'"
        if not self.told.follows:
            return f"lasts WHERE {is_there}"
        laters = {
            era: f"max(CASE WHEN era IN ({', '.join(map(str, some))}) THEN 1 ELSE 0 END)"
            f" OVER (PARTITION BY same) AS after_{era}"
            for era, some in self.told.follows.items()
        }
        counts = " AND ".join(f"NOT (era = {era} AND after_{era} = 1)" for era in laters)
        seen = ", ".join(laters.values())
        return f"(SELECT lasts.*, {seen} FROM lasts) AS seen\nWHERE {is_there} AND {counts}"


def _backwards(of: str) -> str:
    return ", ".join(f"{of}{name} DESC" for name in _ORDER)


def _text(reader: Arrays, told: _Told, at: int) -> str:
    """The text of a column, wherever the definition of a row has it; a key's also of rows that are gone."""
    name = told.final.names[at]
    text = _cases(told, name, lambda place: reader.element("after", place))
    if name not in told.final.key:
        return text
    return (
        f"coalesce({text}, {reader.key_element(reader.quote('key'), told.final.key.index(name))})"
    )


def _cases(told: _Told, name: str, say: Callable[[int], str]) -> str:
    """What is said of a column's place, which depends on the definition; of one that has none such, nothing."""
    places = {schema_id: _place(one.names, name) for schema_id, one in told.definitions.items()}
    if len(set(places.values())) == 1:
        (place,) = set(places.values())
        return say(place) if place is not None else "NULL"
    whens = " ".join(
        f"WHEN '{schema_id}' THEN {say(place) if place is not None else 'NULL'}"
        for schema_id, place in places.items()
    )
    return f"CASE schema_id {whens} END"


def _place(names: Sequence[str], name: str) -> int | None:
    folded = [one.lower() for one in names]
    return folded.index(name.lower()) if name.lower() in folded else None


def _typed(reader: Arrays, text: str, kind: Type) -> str:
    """Numbers as numbers; everything else as its canonical text."""
    match kind:
        case Integer():
            return reader.number(text, 0)
        case Decimal(scale) if scale is not None:
            return reader.number(text, scale)
        case _:
            return text

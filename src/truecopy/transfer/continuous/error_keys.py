"""The rows of errors, by the keys that both databases are asked for them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from truecopy.metastore.validation_errors import ErrorRow
from truecopy.model.errors import UsageError
from truecopy.model.relation import Key
from truecopy.model.text import canonical_text
from truecopy.model.types import Float, Type
from truecopy.transfer.plan import TablePlan


def by_table(errors: Iterable[ErrorRow]) -> dict[str, list[ErrorRow]]:
    """Errors by the source's table."""
    found: dict[str, list[ErrorRow]] = {}
    for error in errors:
        found.setdefault(error.table, []).append(error)
    return found


def plan_of(table: str, plans: Mapping[str, TablePlan]) -> TablePlan:
    """The way of a table; refused where the task has none for it any more."""
    if table not in plans:
        raise UsageError(
            f"{table} is not carried by the task any more, so that its rows cannot be brought right: repair the others"
            " by their numbers, and take these off the record (truecopy validate clear)"
        )
    return plans[table]


def key_of(plan: TablePlan, error: ErrorRow) -> Key:
    """The key of an error's row; refused where the table has another one by now."""
    names = plan.comparison.column_names[: plan.source.key_width]
    if not error.key.keys() >= set(names):
        raise UsageError(
            f"the key of {error.table} has changed since error {error.id} was found: truecopy verify compares the"
            " table, and truecopy validate clear takes the error off the record"
        )
    kinds = plan.source.key_types
    return tuple(_stated(error.key[name], kind) for name, kind in zip(names, kinds, strict=True))


def _stated(text: str | None, kind: Type) -> str | None:
    """A value of a key as the databases are asked for it: reports show floats as people write them."""
    return canonical_text(text, kind) if isinstance(kind, Float) else text

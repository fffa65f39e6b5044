"""The way back: the same task with its ends swapped, from the moment at which both were equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from truecopy.mapping.plan import MappingRules
from truecopy.mapping.routes import Route
from truecopy.model.errors import UsageError
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.settings import Settings

_BACK = "/back"


def is_back(settings: Settings) -> bool:
    """Whether these settings are a way back."""
    return settings.task.endswith(_BACK)


def back_name(task: str) -> str:
    """What the ledger of the old source calls the way back."""
    return f"{task}{_BACK}"


def forth_name(task: str) -> str:
    """The task that a way belongs to."""
    return task.removesuffix(_BACK)


def returns(plans: Mapping[str, TablePlan]) -> dict[str, Any]:
    """Which tables go back, and to where, as JSON can keep it."""
    return {
        str(plan.target.tables[0]): {
            "table": str(plan.mapping.source),
            "columns": {new: old for old, new in plan.mapping.renames.items() if old != new},
        }
        for plan in plans.values()
    }


def way_back(settings: Settings, tables: Mapping[str, Any]) -> Settings:
    """The settings of the way back, for tables as `returns` names them."""
    routes = tuple(
        Route(name, to["table"], columns=dict(to["columns"])) for name, to in tables.items()
    )
    return replace(
        settings,
        task=back_name(settings.task),
        source=settings.target,
        target=settings.source,
        tables=tuple(tables),
        exclude=(),
        rules=MappingRules(routes),
        continuous=None,  # a task has one validation, and that is of the way forth
        # Its name and the settings of its engine are those of the other end.
        reading=replace(settings.reading, shard="", settings={}),
    )


def require_reversible(plans: Mapping[str, TablePlan]) -> None:
    """Refuses a way back on which something would be lost."""
    hint = "there is no way back for it; set cutover.reverse: false to cut over without"
    for name, plan in plans.items():
        if plan.is_mapped:
            raise UsageError(
                f"rows of {name} are filtered, computed or merged on their way: {hint}"
            )
        carried = {column.name for column in plan.source.columns}
        left = [
            column.name
            for column in plan.mapping.source_columns
            if column.name not in carried and not column.generated
        ]
        if left:
            raise UsageError(f"{name}: the target has no {', '.join(left)}, so {hint}")

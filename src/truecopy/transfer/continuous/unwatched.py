"""Errors whose rows nobody waits for: their table stood still, and what became of them is not in the stream.

So both sides are asked, when validation starts and when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from truecopy.engines import pool
from truecopy.metastore.validation_errors import ErrorRow, Found
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import Denied, UsageError
from truecopy.transfer.continuous.error_keys import by_table, key_of, plan_of
from truecopy.transfer.planning import Planning
from truecopy.transfer.proof.look import differences
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Unwatched:
    """Open errors without a pending row.

    Args:
        settings: The task.
        errors: Those that there are.
    """

    def __init__(self, settings: Settings, errors: Iterable[ErrorRow], spark: SparkSession) -> None:
        self._settings = settings
        self._spark = spark
        self._errors = {error.name: error for error in errors}

    def all_settled(self) -> list[Found]:
        """Those whose rows are equal on both sides by now."""
        return self.settled(self._errors)

    def settled(self, names: Iterable[str]) -> list[Found]:
        """The same of those with some names. Of what cannot be compared nothing is said: its table says why."""
        asked = [self._errors[name] for name in names if name in self._errors]
        return [Found(one.name, one.table, resolved=True) for one in self._equal(asked)]

    def forget(self, told: Iterable[Found]) -> None:
        """Rows of which something is told and stored: they are watched from then on, or done."""
        for one in told:
            self._errors.pop(one.name, None)

    def _equal(self, errors: Sequence[ErrorRow]) -> list[ErrorRow]:
        if not errors:
            return []
        settings = self._settings
        try:
            with (
                pool.lease(parse_endpoint(settings.source)) as source,
                pool.lease(parse_endpoint(settings.target)) as target,
            ):
                plans = Planning(settings, lambda _: None).planned(source, target)
            found = list[ErrorRow]()
            for table, some in by_table(errors).items():
                plan = plan_of(table, plans)
                keyed = {key_of(plan, error): error for error in some}
                wrong = {one.key for one in differences(plan, list(keyed), self._spark)}
                found += [error for key, error in keyed.items() if key not in wrong]
        except (UsageError, Denied):
            return []
        return found

"""Of a leg of a keyspace: whether every row of its tables belongs to a shard."""

from __future__ import annotations

from collections.abc import Iterator

from truecopy.model.errors import UsageError
from truecopy.model.finding import Finding, Subject
from truecopy.transfer.narrowing import NAMELESS, lacks_ids, sharding_column
from truecopy.transfer.preflight.ends import Ends, error, info, told_apart


def check_sharding(ends: Ends) -> Iterator[Finding]:
    """What it carries, and tables of which it is not known whose rows are whose."""
    leg = ends.settings.leg
    if leg is None:
        return
    carried = f"the key range {leg.target} of shard {leg.shard}"
    origins = f", and truecopy_origin on {leg.onto} records what is in" if leg.onto else ""
    yield info(Subject.TABLES, f"carries {carried}{origins}")
    if not leg.is_filtered and not leg.is_shared:
        return
    for pair in ends.pairs:
        try:
            rule = leg.rule(pair.name)
            column = sharding_column(pair.mapping, rule)
        except UsageError as reason:
            yield error(Subject.TABLES, *told_apart(reason), table=pair.name)
            continue
        if leg.is_shared and column.name not in pair.mapping.renames:
            yield error(
                Subject.TABLES,
                f"{column.name}, by which it is sharded, does not arrive as it is, and shards meet on the target",
                f"neither mask, cast nor drop {column.name}",
                pair.name,
            )
        if pair.is_small and lacks_ids(ends.source, pair.source.name, column, rule):
            message, _, remedy = NAMELESS.format(column.name).partition(": ")
            yield error(Subject.TABLES, message, remedy, pair.name)

"""Fingerprints of rows that Spark holds, as the databases compute theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from truecopy.engines import deferred
from truecopy.model.relation import Relation
from truecopy.sparksql.dialect import fingerprint_sql

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame


def fingerprinted(texts: DataFrame, relation: Relation) -> DataFrame:
    """Keys (`k0`, `k1`, …) and `fingerprint` of rows of canonical texts (`c0`, `c1`, …)."""
    from pyspark.sql import functions as F

    keys = [F.col(f"c{i}").alias(f"k{i}") for i in range(relation.key_width)]
    return texts.select(*keys, fingerprint_of(relation).alias("fingerprint"))


def fingerprint_of(relation: Relation) -> Expression:
    """The fingerprint of the columns `c0`, `c1`, ….; documents are still as they are written."""
    from pyspark.sql import functions as F

    names = [f"c{i}" for i in relation.pushed]
    value = F.expr(fingerprint_sql(names, [relation.types[i] for i in relation.pushed]))
    if not relation.deferred:
        return value
    documents = F.array(*(F.col(f"c{i}") for i in relation.deferred))
    return _python_fold(relation)(value, documents)


def _python_fold(relation: Relation) -> Callable[..., Expression]:
    from pyspark.sql.pandas.functions import arrow_udf

    def fold(partials: pa.Array, documents: pa.Array) -> pa.Array:
        pairs = zip(partials.to_pylist(), documents.to_pylist(), strict=True)
        whole = [deferred.fold(partial, texts, relation) for partial, texts in pairs]
        return pa.array(whole, pa.int64())

    made: Callable[..., Expression] = arrow_udf(fold, "bigint")  # type: ignore[call-overload]
    return made

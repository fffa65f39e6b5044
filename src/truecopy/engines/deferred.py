"""Columns whose canonical text no database can give (JSON): the reader finishes the fingerprint.

The database fingerprints the other columns; the reader folds the canonical text of the deferred
ones into it. Callers see whole fingerprints and need not know.
"""

from __future__ import annotations

import pyarrow as pa

from truecopy.model.fingerprint import Digest, digest_of, fingerprint
from truecopy.model.relation import Relation
from truecopy.model.text import canonical_text
from truecopy.model.types import Integer, Type


def fold(partial: int, documents: list[str | None], relation: Relation) -> int:
    """The fingerprint of a row from that of its other columns and the raw deferred texts."""
    types: list[Type] = [relation.types[i] for i in relation.deferred]
    texts = [
        canonical_text(document, kind) for document, kind in zip(documents, types, strict=True)
    ]
    return fingerprint([str(partial), *texts], [Integer(), *types])


def finish_fingerprints(table: pa.Table, relation: Relation) -> pa.Table:
    """From `k…, f, d…` to `k…, fingerprint`."""
    partial = table.column("f")
    if not relation.deferred:
        return table.rename_columns([*table.column_names[:-1], "fingerprint"])
    documents = [table.column(f"d{i}").to_pylist() for i in relation.deferred]
    whole = [
        fold(part, list(row), relation)
        for part, *row in zip(partial.to_pylist(), *documents, strict=True)
    ]
    keys = table.select([f"k{i}" for i in range(relation.key_width)])
    return keys.append_column("fingerprint", pa.array(whole, pa.int64()))


def finish_rows(table: pa.Table, relation: Relation) -> pa.Table:
    """The deferred columns of whole rows as canonical text."""
    for i in relation.deferred:
        texts = [
            canonical_text(value, relation.types[i]) for value in table.column(f"c{i}").to_pylist()
        ]
        table = table.set_column(i, f"c{i}", pa.array(texts, pa.string()))
    return table


def finish_fingerprinted(table: pa.Table, partial: pa.ChunkedArray, relation: Relation) -> pa.Table:
    """From `c…, f` with the fingerprints that `f` stands for to `c…, fingerprint`."""
    whole = partial
    if relation.deferred:
        documents = [table.column(f"c{i}").to_pylist() for i in relation.deferred]
        folded = [
            fold(part, list(row), relation)
            for part, *row in zip(partial.to_pylist(), *documents, strict=True)
        ]
        whole = pa.chunked_array([pa.array(folded, pa.int64())])
    rows = finish_rows(table.drop_columns(["f"]), relation)
    return rows.append_column("fingerprint", whole)


def fingerprints_of_rows(rows: pa.Table, relation: Relation) -> pa.Array:
    """The fingerprints of whole rows at hand."""
    types = [relation.types[i] for i in relation.pushed]
    texts = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    values = []
    for row in texts:
        value = fingerprint([row[i] for i in relation.pushed], types)
        if relation.deferred:
            value = fold(value, [row[i] for i in relation.deferred], relation)
        values.append(value)
    return pa.array(values, pa.int64())


def digest_of_table(table: pa.Table) -> Digest:
    """The digest of fingerprints at hand."""
    return digest_of(table.column("fingerprint").to_pylist())


def bucket_digests_of_table(table: pa.Table, digits: int) -> dict[int, Digest]:
    """The digest of each bucket of fingerprints at hand."""
    found: dict[int, Digest] = {}
    for value in table.column("fingerprint").to_pylist():
        bucket = value >> (60 - 4 * digits)
        found[bucket] = found.get(bucket, Digest()) + Digest(1, value)
    return found

"""The digest of a chunk in PostgreSQL, at the price of the hashes.

As one expression a row's fingerprint costs a fifth more: PostgreSQL computes what is written twice
twice (a text, and its length), and has no function from bytes to an integer but by way of hex and
bits. So the texts are named first, the hash next, and its bytes are summed one by one. Without
OFFSET the planner would put the three together again.
"""

from __future__ import annotations

from truecopy.engines import sql
from truecopy.engines.postgresql_dialect import PostgreSQLDialect
from truecopy.engines.protocols import Statement
from truecopy.model.relation import Chunk, Relation
from truecopy.model.table import TableName

_WHOLE_BYTES, _REST = divmod(sql.BITS, 8)


def digest_sql(
    dialect: PostgreSQLDialect, relation: Relation, table: TableName, chunk: Chunk
) -> Statement:
    """Rows, and the sum of their fingerprints."""
    texts = sql.pushed_texts(dialect, relation)
    names = [type(text)(f"t{i}") for i, text in enumerate(texts)]
    named = ", ".join(f"{text} AS {name}" for text, name in zip(texts, names, strict=True))
    rows = sql.select_sql(dialect, relation, table, chunk, named)
    row_text = sql.row_text_sql(dialect, relation, names)
    hashes = f"SELECT {dialect.hash_bytes(row_text)} AS h FROM ({rows.sql} OFFSET 0) AS t OFFSET 0"
    return Statement(f"SELECT COUNT(*), {_TOTAL} FROM ({hashes}) AS u", rows.values)


def _total() -> str:
    """The sum of the first 60 bits of `h`, from the sums of its bytes."""
    whole = [
        f"SUM(get_byte(h,{i}))*{2 ** (sql.BITS - 8 * (i + 1))}::numeric"
        for i in range(_WHOLE_BYTES)
    ]
    return "+".join([*whole, f"SUM(get_byte(h,{_WHOLE_BYTES})>>{8 - _REST})"])


_TOTAL = _total()

"""SQL for the checksums of a query's result, composed from what an engine says differently.

An engine names the text of a scalar, the hash, and how it walks lists; texts of lists, maps and
structures follow here, once, so that they are equal wherever the values are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from truecopy.model.shape import ListOf, MapOf, Scalar, Shape, StructOf
from truecopy.model.types import Float, Type

_COMMA, _SEMICOLON = "','", "';'"


class Texts(ABC):
    """What one kind of SQL says differently about values. Expressions are never NULL-unsafe."""

    placeholder = "?"

    @abstractmethod
    def quote(self, name: str) -> str:
        """An identifier, quoted."""

    def escaped(self, sql: str) -> str:
        """SQL of a user inside of ours: drivers with %s read a % as one of theirs."""
        return sql.replace("%", "%%") if self.placeholder == "%s" else sql

    @abstractmethod
    def scalar(self, x: str, own: Scalar, kind: Type) -> str:
        """The canonical text of an expression; NULL stays NULL."""

    def number(self, x: str, own: Scalar) -> str:
        """A numeric expression as a double."""
        return x if isinstance(own.type, Float) else f"CAST({x} AS DOUBLE)"

    @abstractmethod
    def rounded(self, x: str, own: Scalar, scale: int) -> str:
        """The text of a decimal, rounded to so many digits after the point."""

    def concat(self, parts: Sequence[str]) -> str:
        """Texts put together; NULL if one of them is."""
        return f"({' || '.join(parts)})"

    def joined(self, parts: Sequence[str]) -> str:
        """Texts and the marks between them put together; NULL is nothing."""
        return self.concat(
            [part if part in (_COMMA, _SEMICOLON) else f"COALESCE({part},'')" for part in parts]
        )

    @abstractmethod
    def byte_length(self, text: str) -> str:
        """The length of a text in UTF-8 bytes, fit for `concat`."""

    @abstractmethod
    def hash60(self, text: str) -> str:
        """The first 60 bits of the SHA-256 of a text, as an integer."""

    def bucket(self, number: str, buckets: int) -> str:
        """A fingerprint modulo a number of buckets."""
        return f"({number} {self.escaped('%')} {buckets:d})"

    def own_hash(self, columns: Sequence[tuple[str, Scalar]]) -> str | None:
        """The engine's own hash of values as they are, 64 bits or more; None where it has none.

        Only to be compared with that of the same engine: what it takes for different may still be
        equal, what it takes for equal is.
        """
        del columns
        return None

    def total(self, x: str) -> str:
        """The exact sum of whole numbers of 60 bits, 0 where there are none."""
        return f"COALESCE(SUM({x}), 0)"

    @abstractmethod
    def special(self, x: str) -> tuple[str, str, str]:
        """Conditions: a double is not a number, is infinity, is minus infinity."""

    # Where the engine has lists, maps and structures

    def field(self, x: str, name: str) -> str:
        """A field of a structure."""
        return f"{x}.{self.quote(name)}"

    def gather(self, x: str, variable: str, item: str, *, ordered: bool) -> str:
        """The texts `item` of a list's elements put together; sorted by bytes unless `ordered`."""
        raise NotImplementedError

    def entries(self, x: str) -> str:
        """The entries of a map as a list."""
        return f"map_entries({x})"

    def entry(self, x: str) -> tuple[str, str]:
        """Key and value of an entry."""
        return f"{x}.key", f"{x}.value"

    def values(self, x: str) -> str:
        """The values of a map as a list."""
        return f"map_values({x})"

    def keys(self, x: str) -> str:
        """The keys of a map as a list."""
        return f"map_keys({x})"

    def size(self, x: str) -> str:
        """How many elements a list has, and how many of them are not NULL, as one text."""
        raise NotImplementedError

    def list_sum(self, x: str) -> str:
        """The sum of a list of floats as a double, 0 for an empty list."""
        raise NotImplementedError

    # Composed

    def text(
        self, x: str, own: Shape, agreed: Shape, *, ordered: bool = True, depth: int = 0
    ) -> str:
        """The text of a value of any shape under the agreed shape; NULL stays NULL."""
        match own, agreed:
            case Scalar(), Scalar():
                return self.scalar(x, own, agreed.type)
            case ListOf(element), ListOf(agreed_element):
                e = f"e{depth}"
                item = self.text(e, element, agreed_element, ordered=ordered, depth=depth + 1)
                return self.gather(x, e, self._sized(item), ordered=ordered)
            case MapOf(key, value), MapOf(agreed_key, agreed_value):
                e = f"e{depth}"
                k, v = self.entry(e)
                pair = [
                    self._sized(self.text(k, key, agreed_key, ordered=ordered, depth=depth + 1)),
                    self._sized(
                        self.text(v, value, agreed_value, ordered=ordered, depth=depth + 1)
                    ),
                ]
                return self.gather(self.entries(x), e, self.concat(pair), ordered=False)
            case StructOf(fields), StructOf(agreed_fields):
                parts = [
                    self._sized(
                        self.text(self.field(x, name), field, wanted, ordered=ordered, depth=depth)
                    )
                    for (name, field), (_, wanted) in zip(fields, agreed_fields, strict=True)
                ]
                return f"CASE WHEN {x} IS NULL THEN NULL ELSE {self.concat(parts)} END"
            case _:
                raise TypeError("shapes that were not agreed on")

    def row_hash(self, texts: Sequence[str], free: Sequence[bool]) -> str:
        """The fingerprint of a row of texts: `truecopy.model.fingerprint`, computed by the engine."""
        if not texts:
            return self.hash60("''")
        parts = [part for text in texts for part in (_COMMA, text)][1:]
        mark = _SEMICOLON
        for text, is_free in zip(texts, free, strict=True):
            if is_free:
                parts += [mark, self.byte_length(text)]
                mark = _COMMA
        return self.hash60(self.joined(parts))

    def _sized(self, text: str) -> str:
        return (
            f"COALESCE({self.concat([self.byte_length(text), chr(39) + ':' + chr(39), text])}, '-')"
        )

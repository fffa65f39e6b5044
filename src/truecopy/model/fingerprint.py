"""The fingerprint of a row and the digest of a set of rows: the reference implementation.

Row text: the canonical texts joined by `,` with NULL as nothing; then, if any column is free text,
`;` and for each such column its length in UTF-8 bytes (nothing for NULL), joined by `,`. Since only
free text can hold a separator, and its length says where it ends, two rows have the same row text
only if they are equal column by column; see `docs/fingerprint.md`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truecopy.model.types import Type, is_free_text

HEX_DIGITS = 15
"""Digits of the SHA-256 that make the fingerprint: 60 bits, so that every engine has a signed integer for it."""


def row_text(texts: Sequence[str | None], types: Sequence[Type]) -> str:
    """The one text that stands for a row."""
    body = ",".join(text or "" for text in texts)
    free = [text for text, kind in zip(texts, types, strict=True) if is_free_text(kind)]
    if not free:
        return body
    return body + ";" + ",".join("" if text is None else str(len(text.encode())) for text in free)


def fingerprint(texts: Sequence[str | None], types: Sequence[Type]) -> int:
    """The first 60 bits of the SHA-256 of the row text."""
    return int(hashlib.sha256(row_text(texts, types).encode()).hexdigest()[:HEX_DIGITS], 16)


@dataclass(frozen=True)
class Digest:
    """Count and sum of the fingerprints of a set of rows; sums of disjoint sets add up."""

    count: int = 0
    total: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.count + other.count, self.total + other.total)


def digest_of(fingerprints: Iterable[int]) -> Digest:
    """The digest of rows whose fingerprints are at hand."""
    values = list(fingerprints)
    return Digest(len(values), sum(values))

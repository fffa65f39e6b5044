"""A finished chunk, as the record of a verification keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkRecord:
    """A finished chunk; `summary` is what the verifier wants to know of it again."""

    comparison: int
    number: int
    summary: dict[str, str | int | float]
    found: int
    differences: bytes

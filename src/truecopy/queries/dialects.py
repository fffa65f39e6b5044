"""Which SQL an end speaks, told by its URL alone: for lists that connect to nothing."""

from __future__ import annotations

from truecopy.model.endpoint import parse_endpoint

_BY_SCHEME = {"postgresql": "postgres", "mariadb": "mysql", "tidb": "mysql", "sc": "spark"}


def dialect_of(url: str | None) -> str:
    """Sqlglot's name of the dialect; the common one where there is no URL."""
    if url is None:
        return ""
    scheme = parse_endpoint(url).scheme
    return _BY_SCHEME.get(scheme, scheme)

"""The settings at the top of a YAML suite: its two ends, and the choices of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from truecopy.model.errors import UsageError
from truecopy.queries.query import Override
from truecopy.queries.reading import read_override
from truecopy.queries.settings import Settings
from truecopy.queries.sources import suite_document

_OF_ENDS = ("url", "scratch")


@dataclass(frozen=True)
class SuiteHead:
    """What a suite says beside its queries."""

    control: str | None = None
    test: str | None = None
    settings: Settings = Settings()  # noqa: RUF009 - frozen


def read_head(location: str) -> SuiteHead:
    """The head of a suite; sources that are no YAML files have none."""
    if Path(location).suffix.lower() not in (".yaml", ".yml"):
        return SuiteHead()
    document = suite_document(location)
    known = {field.name for field in fields(Settings)} - {"scratch", "overrides"}
    ends = {name: _end(document.get(name), f"{location}, {name}") for name in ("control", "test")}
    settings = Settings(
        scratch=(ends["control"][1], ends["test"][1]),
        overrides=(ends["control"][2], ends["test"][2]),
    )
    changes: dict[str, Any] = {}
    for name, value in (document.get("settings") or {}).items():
        field = str(name).replace("-", "_")
        if field not in known:
            raise UsageError(
                f"{location}, settings: unknown {name}; known are {', '.join(sorted(known))}"
            )
        changes[field] = _fitting(value, getattr(settings, field), f"{location}, settings, {name}")
    return SuiteHead(ends["control"][0], ends["test"][0], replace(settings, **changes))


def _end(value: object, where: str) -> tuple[str | None, str | None, Override]:
    if value is None:
        return None, None, Override()
    if isinstance(value, str):
        return value, None, Override()
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: a URL is expected, or a mapping with `url`")
    rest = {name: each for name, each in value.items() if name not in _OF_ENDS}
    return value.get("url"), value.get("scratch"), read_override(rest, where)


def _fitting(value: object, like: object, where: str) -> object:
    if isinstance(like, tuple):
        return tuple(str(each) for each in (value if isinstance(value, list) else [value]))
    if isinstance(like, bool | Mapping | str):
        kind = Mapping if isinstance(like, Mapping) else type(like)
        if not isinstance(value, kind):
            raise UsageError(f"{where}: {kind.__name__.lower()} is expected, not {value!r}")
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{where}: a number is expected, not {value!r}")
    return int(value) if isinstance(like, int) else float(value)

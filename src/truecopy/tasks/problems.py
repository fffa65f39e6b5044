"""What is wrong with a task file, a line each: the path of the key, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from truecopy.mapping.choice import nearest
from truecopy.model.errors import UsageError
from truecopy.tasks.values import kebab

_WORDS = {
    "enum": "{value} is none of {expected}",
    "literal_error": "{value} is none of {expected}",
    "bool_parsing": "{value} is neither true nor false",
    "bool_type": "neither true nor false",
    "int_parsing": "{value} is no whole number",
    "int_type": "not a whole number",
    "greater_than_equal": "{value} is too small: at least {ge}",
    "less_than_equal": "{value} is too large: at most {le}",
    "string_type": "not text; put it in quotes",
    "string_pattern_mismatch": "only letters, digits, points, - and _",
    "model_type": "not a mapping; write lines of the form NAME: VALUE",
    "dict_type": "not a mapping; write lines of the form NAME: VALUE",
    "tuple_type": "not a list; write [A, B]",
    "list_type": "not a list; write [A, B]",
    "missing": "missing",
}
"""Pydantic's errors in our words. Only fields that never hold a secret show their value."""
_PREFIX = "Value error, "


class TaskFileError(UsageError):
    """All problems of a file at once, so that one run of the program is enough to mend them."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("; ".join(self.problems))
        self._name = name

    def __str__(self) -> str:
        return "\n".join(f"{self._name}: {' '.join(line.split())}" for line in self.problems)


def unknown_keys(model: type[BaseModel], data: object, path: str = "") -> Iterator[str]:
    """Keys that no section has, with the one that was meant."""
    if not isinstance(data, Mapping):
        return
    fields = {kebab(name): field.annotation for name, field in model.model_fields.items()}
    for key, value in data.items():
        here = f"{path}{key}"
        if key not in fields:
            yield f"{here}: unknown{nearest(str(key), fields)}"
            continue
        for inner, below, where in _below(fields[key], value, here):
            yield from unknown_keys(inner, below, f"{where}.")


def find_problems(error: ValidationError, document: object) -> Iterator[str]:
    """The lines of a failed validation, unknown keys left out: `unknown_keys` says more of them."""
    for one in error.errors(include_url=False):
        if one["type"] == "extra_forbidden":
            continue
        context: dict[str, Any] = one.get("ctx") or {}
        path, value = _place(one["loc"], document)
        if one["type"] == "missing":
            path.append(str(one["loc"][-1]))
        if "key" in context:
            path.append(str(context["key"]))
        words = _WORDS.get(one["type"])
        message = words.format(value=repr(value), **context) if words else one["msg"]
        yield ": ".join(filter(None, (".".join(path), message.removeprefix(_PREFIX))))


def _below(
    annotation: Any, value: object, path: str
) -> Iterator[tuple[type[BaseModel], object, str]]:
    """The sections inside a value, by the type of its field."""
    models = list(_models(annotation))
    if not models or not isinstance(value, Mapping | list):
        return
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _below(annotation, item, f"{path}.{place}")
    elif _is_keyed(annotation):
        for key, item in value.items():
            yield models[0], item, f"{path}.{key}"
    else:
        # Of two kinds of section, the one that has more of the keys is meant.
        yield max(models, key=lambda one: len(_keys(one) & value.keys())), value, path


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models(part)


def _is_keyed(annotation: Any) -> bool:
    """Whether the keys of a mapping are names that the user gives."""
    origin = getattr(annotation, "__origin__", None)
    return origin is dict or any(_is_keyed(part) for part in get_args(annotation))


def _keys(model: type[BaseModel]) -> set[str]:
    return {kebab(name) for name in model.model_fields}


def _place(location: Sequence[str | int], document: object) -> tuple[list[str], object]:
    """The path in the document; what pydantic adds for its own kinds of values is left out."""
    path: list[str] = []
    here: Any = document
    for part in location:
        is_place = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if is_place or (isinstance(here, Mapping) and part in here):
            here = here[part]
            path.append(str(part))
    return path, here

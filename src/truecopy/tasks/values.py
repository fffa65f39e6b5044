"""Values of a task file that are more than text: durations, sizes, hours, secrets, types, names of variables."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from truecopy.model.errors import UsageError
from truecopy.model.hours import PATTERN, Hours, parse_hours
from truecopy.model.secret import Secret, fill_variables
from truecopy.model.types import Type, parse_type, type_name
from truecopy.stream.request import parse_bytes

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_SIZE = r"\d+ *[kmgKMG]?[bB]?"


def kebab(name: str) -> str:
    """A field's name as the file writes it."""
    return name.strip("_").replace("_", "-")


class Section(BaseModel):
    """A mapping of the file. Nothing in it is ignored, and nothing of it changes later."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it may be a password
        arbitrary_types_allowed=True,
    )

    short: ClassVar[dict[str, Any] | None] = None
    """The JSON Schema of what may stand in the place of the mapping."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler(core)
        return {"anyOf": [cls.short, whole]} if cls.short else whole

    @model_validator(mode="before")
    @classmethod
    def _fill_variables(cls, data: object) -> object:
        """Puts `${NAME}` into plain values. Secrets keep theirs until they are used."""
        if not isinstance(data, dict):
            return data
        kept = {
            kebab(name)
            for name, field in cls.model_fields.items()
            if _keeps_variables(field.annotation)
        }
        return {n: value if n in kept else _fill(n, value) for n, value in data.items()}


def seconds(value: object) -> float:
    """Reads `250ms`, `10s`, `1h30m`; a bare number counts seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if isinstance(value, str) and re.fullmatch(f"({_DURATION})+", value.strip()):
        parts = re.findall(_DURATION, value)
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    raise ValueError("not a duration; write for example 500ms, 10s, 30m or 1h30m")


def size(value: object) -> int:
    """Reads `512k`, `64m`, `2g`; a bare number counts bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return parse_bytes(str(value))
    except ValueError:
        raise ValueError("not a size; write for example 512k, 64m or 2g") from None


def hours(value: object) -> Hours:
    """Reads `22:00-06:00`."""
    if isinstance(value, Hours):
        return value
    return parse_hours(value if isinstance(value, str) else "")


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("not a secret; write ${NAME} or file:/path")
    return Secret(value)


def _kind(value: object) -> Type:
    if not isinstance(value, str):
        if isinstance(value, get_args(Type)):
            kind: Type = value
            return kind
        raise ValueError("not a type; write for example text or decimal(2)")
    try:
        return parse_type(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _written(text: str, pattern: str) -> WithJsonSchema:
    either = [{"type": "string", "pattern": f"^{pattern}$"}, {"type": "number", "minimum": 0}]
    return WithJsonSchema({"anyOf": either, "examples": [text]})


Duration = Annotated[float, PlainValidator(seconds), _written("10s", f"({_DURATION})+")]
Size = Annotated[int, PlainValidator(size), _written("64m", _SIZE)]
DayHours = Annotated[
    Hours,
    PlainValidator(hours),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": f"^{PATTERN}$", "examples": ["22:00-06:00"]}),
]
SecretText = Annotated[
    Secret,
    PlainValidator(_secret),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": ["${NAME}", "file:/run/secrets/name"]}),
]
TypeName = Annotated[
    Any,  # a union of dataclasses, which pydantic would take apart
    PlainValidator(_kind),
    PlainSerializer(type_name),
    WithJsonSchema({"type": "string", "examples": ["text", "integer", "decimal(2)", "date"]}),
]


def _keeps_variables(annotation: Any) -> bool:
    """Whether a field fills its variables itself (a section does) or later (a secret does)."""
    if annotation is Secret or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return True
    return any(_keeps_variables(part) for part in get_args(annotation))


def _fill(key: object, value: object) -> object:
    if isinstance(value, list):
        return [_fill(key, item) for item in value]
    if isinstance(value, dict):
        return {name: _fill(key, item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    try:
        return fill_variables(value, None, "the task")
    except UsageError as error:
        # The error is one of the section; `key` says where in it.
        raise PydanticCustomError("variable", "{why}", {"why": str(error), "key": key}) from None

"""A row decoder made for one table: Python source for exactly its columns, compiled once.

The function reads a run of rows without asking for types. Neighbours of a fixed size are read by one
call, together with the row's NULL marks and the length of the next value; a row that holds a NULL takes
a slower way, column by column.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog.columns import LoggedColumn
from truecopy.stream.binlog.layouts import layout

Texts = list[bytes | None]


@dataclass(frozen=True)
class Image:
    """Which columns the rows of an event hold, by the event's own bitmaps.

    Attributes:
        present: Of the only image of an insert or delete, or of an update's first.
        after: Of an update's second image; None for inserts and deletes.
        keys_only: Give keys only, whatever the rows hold.
    """

    present: bytes
    after: bytes | None = None
    keys_only: bool = False

    def columns(self, bitmap: bytes, count: int) -> tuple[int, ...]:
        return tuple(i for i in range(count) if bitmap[i >> 3] >> (i & 7) & 1)


@dataclass(frozen=True)
class Decoder:
    """Reads rows; `buf` is `bytes`, and the rows lie between `pos` and `end` of it.

    Attributes:
        decode: `(buf, pos, end, keys, values) -> count`, for inserts and deletes: appends each row's
            key to `keys` and its texts to `values`.
        decode_updates: `(buf, pos, end, keys, before, after) -> (count, moved)`; None for images of
            inserts and deletes. `moved` lists the rows, counted from 0, whose key changed: for these
            `keys` gets the old key and then the new one, so that they can be said as a delete and an insert.
        source: What was compiled, for people.
    """

    decode: Callable[[bytes, int, int, Texts, Texts], int] | None
    decode_updates: Callable[[bytes, int, int, Texts, Texts, Texts], tuple[int, list[int]]] | None
    source: str


def compile_decoder(
    columns: tuple[LoggedColumn, ...], definition: Definition, *, image: Image
) -> Decoder:
    """A decoder for rows of this table with these columns in them.

    Columns that an image lacks become NULL texts; whether that may be is for the caller to say.
    """
    if len(columns) != len(definition.columns):
        raise CannotFinish(
            f"{definition.table} has {len(columns)} columns in the log and {len(definition.columns)} in its definition"
        )
    writer = _Writer(columns, definition, image)
    source = writer.updates() if image.after is not None else writer.rows()
    namespace = writer.names
    exec(compile(source, f"<rows of {definition.table}>", "exec"), namespace)
    made = cast(Any, namespace["decode"])
    return Decoder(None, made, source) if image.after is not None else Decoder(made, None, source)


class _Writer:
    """Writes the source."""

    def __init__(
        self, columns: tuple[LoggedColumn, ...], definition: Definition, image: Image
    ) -> None:
        self.definition = definition
        self.image = image
        self.names: dict[str, Any] = {
            "StructError": struct.error,
            "bad_row": _bad_row(definition.table),
            "from_bytes": int.from_bytes,
        }
        self.columns = len(columns)
        self.keys = definition.key_places
        self.layouts = [
            layout(logged, column)
            for logged, column in zip(columns, definition.columns, strict=True)
        ]
        self.pad = 0

    def rows(self) -> str:
        present = self.image.columns(self.image.present, self.columns)
        missing = [
            name for name, i in zip(self.definition.key, self.keys, strict=True) if i not in present
        ]
        self._require(missing)
        body = self._image(present, "t")
        gather = []
        if self.keys:
            gather.append(_append("keys", [f"t{i}" for i in self.keys]))
        if not self.image.keys_only:
            gather.append(
                _append(
                    "values", [f"t{i}" if i in present else "None" for i in range(self.columns)]
                )
            )
        return _function(
            "buf, pos, end, keys, values", [*body, *gather, "count += 1"], "count", self.pad
        )

    def updates(self) -> str:
        after_map = self.image.after
        assert after_map is not None
        before = self.image.columns(self.image.present, self.columns)
        after = self.image.columns(after_map, self.columns)
        self._require(
            [
                name
                for name, i in zip(self.definition.key, self.keys, strict=True)
                if i not in before
            ]
        )
        gather = []
        if self.keys:
            old = [f"t{i}" for i in self.keys]
            # A key column that the second image lacks did not change.
            new = [f"u{i}" for i in self.keys if i in after]
            same = " and ".join(f"t{i} == u{i}" for i in self.keys if i in after)
            gather.append(_append("keys", old))
            if new:
                moved = [f"u{i}" if i in after else f"t{i}" for i in self.keys]
                gather += [
                    f"if not ({same}):",
                    "    moved.append(count)",
                    "    " + _append("keys", moved),
                ]
        if not self.image.keys_only:
            for target, prefix, present in (("before", "t", before), ("after", "u", after)):
                texts = [f"{prefix}{i}" if i in present else "None" for i in range(self.columns)]
                gather.append(_append(target, texts))
        body = [*self._image(before, "t"), *self._image(after, "u"), *gather, "count += 1"]
        return _function(
            "buf, pos, end, keys, before, after",
            ["", *body],
            "count, moved",
            self.pad,
            "moved = []",
        )

    def _require(self, missing: list[str]) -> None:
        if missing:
            raise CannotFinish(
                f"the log of {self.definition.table} lacks the key's column {missing[0]}:"
                " set binlog_row_image = FULL on the source"
            )

    def _image(self, present: tuple[int, ...], prefix: str) -> list[str]:
        """Statements that read one image at `p` into one variable per column."""
        if not present:
            return []
        wanted = self.keys if self.image.keys_only else present
        quick = self._quick(present, wanted, prefix)
        slow = self._slow(present, wanted, prefix)
        return [*quick, "else:", *_indent(slow)]

    def _quick(self, present: tuple[int, ...], wanted: tuple[int, ...], prefix: str) -> list[str]:
        """No NULL in the row: values are read in groups."""
        marks = (len(present) + 7) // 8
        lines: list[str] = []
        targets: list[str]
        targets, format_ = ["nulls"], f"{marks}s" if marks > 1 else "B"
        texts: list[str] = []
        started = False

        def read() -> None:
            nonlocal started, format_, targets
            if not targets and not format_:
                return
            group = Struct("<" + format_)
            name = self._bind("unpack", group.unpack_from)
            if targets:
                lines.append(f"{', '.join(targets)}, = {name}(buf, p)")
            if not started:
                self.pad = max(self.pad, group.size)
                lines.append(self._no_nulls(len(present)))
                started = True
            lines.append(f"p += {group.size}")
            targets, format_ = [], ""

        for i in present:
            own = self.layouts[i]
            variables = [f"{prefix}{i}_{part}" for part in range(own.parts)]
            if own.sized:
                targets += variables
                format_ += own.format
                read()
                length = _length(variables)
                lines.append(f"q = p + {length}")
                if i in wanted:
                    lines.append(f"{prefix}{i}_0 = buf[p:q]")
                    lines += texts
                    texts = []
                    texts.append(f"{prefix}{i} = {self._expression(i, [f'{prefix}{i}_0'])}")
                lines.append("p = q")
            elif i in wanted:
                targets += variables
                format_ += own.format
                texts.append(f"{prefix}{i} = {self._expression(i, variables)}")
            else:
                format_ += f"{own.size}x"
        read()
        lines += texts
        first = next(i for i, line in enumerate(lines) if line.startswith("if "))
        return [*lines[: first + 1], *_indent(lines[first + 1 :])]

    def _no_nulls(self, count: int) -> str:
        if count <= 8:
            return f"if not nulls & {(1 << count) - 1}:"
        # The unused bits at the end are all zeros or all ones.
        size = (count + 7) // 8
        spare = 8 * size - count
        clean = {bytes(size), (((1 << spare) - 1) << count).to_bytes(size, "little")}
        return f"if nulls in {self._bind('clean', frozenset(clean))}:"

    def _slow(self, present: tuple[int, ...], wanted: tuple[int, ...], prefix: str) -> list[str]:
        marks = (len(present) + 7) // 8
        lines = [f"p += {marks}"]
        if marks > 1:
            lines.append('nulls = from_bytes(nulls, "little")')
        for bit, i in enumerate(present):
            own = self.layouts[i]
            variables = [f"{prefix}{i}_{part}" for part in range(own.parts)]
            name = self._bind("unpack", Struct("<" + own.format).unpack_from)
            lines.append(f"if nulls & {1 << bit}:")
            lines.append(f"    {prefix}{i} = None")
            lines.append("else:")
            lines.append(f"    {', '.join(variables)}, = {name}(buf, p)")
            if own.sized:
                lines.append(f"    p += {own.size}")
                lines.append(f"    q = p + {_length(variables)}")
                if i in wanted:
                    lines.append(f"    {prefix}{i}_0 = buf[p:q]")
                lines.append("    p = q")
                variables = [f"{prefix}{i}_0"]
            else:
                lines.append(f"    p += {own.size}")
            if i in wanted:
                lines.append(f"    {prefix}{i} = {self._expression(i, variables)}")
        return lines

    def _expression(self, column: int, variables: list[str]) -> str:
        own = self.layouts[column]
        text = own.text
        for name, value in own.names.items():
            unique = f"{name}_{column}"
            self.names[unique] = value
            text = _replace_name(text, name, unique)
        return text.format(*variables)

    def _bind(self, name: str, value: object) -> str:
        unique = f"{name}_{len(self.names)}"
        self.names[unique] = value
        return unique


def _bad_row(table: str) -> Callable[[object], CannotFinish]:
    def error(cause: object) -> CannotFinish:
        return CannotFinish(
            f"a row of {table} in the binary log does not fit the table's definition ({cause}):"
            " was the definition changed without being logged? Take a new snapshot of the table"
        )

    return error


def _function(arguments: str, body: list[str], result: str, pad: int, start: str = "") -> str:
    """The loop over rows.

    The first read of a row takes as many bytes as a row without NULLs has: the last row may be shorter,
    so zeros follow it. Whatever runs beyond the end is found there, since no row may end elsewhere.
    """
    lines = [
        f"def decode({arguments}):",
        f"    buf = buf[pos:end] + bytes({pad})",
        "    end -= pos",
        "    p = count = 0",
        *([f"    {start}"] if start else []),
        "    try:",
        "        while p < end:",
        *_indent(_indent(_indent(body))),
        "    except (StructError, LookupError, ValueError, OverflowError) as error:",
        "        raise bad_row(error) from None",
        "    if p != end:",
        "        raise bad_row(f'{p - end} bytes beyond its end')",
        f"    return {result}",
    ]
    return "\n".join(lines) + "\n"


def _append(target: str, texts: list[str]) -> str:
    if len(texts) == 1:
        return f"{target}.append({texts[0]})"
    return f"{target} += ({', '.join(texts)},)"


def _length(variables: list[str]) -> str:
    return variables[0] if len(variables) == 1 else f"({variables[0]} | {variables[1]} << 16)"


def _indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _replace_name(text: str, name: str, unique: str) -> str:
    return re.sub(rf"\b{name}\b", unique, text)

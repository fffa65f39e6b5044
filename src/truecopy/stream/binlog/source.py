"""The source of row decoders: Python for exactly the columns of one table.

Neighbours of a fixed size are read by one call of `struct`, together with the row's NULL marks and the
next value of varying length. `buf` goes on behind the last row: a read may take more than a row has, and
nothing of that is used, since a row's NULL marks are looked at first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog import columns as logged
from truecopy.stream.binlog.columns import LoggedColumn
from truecopy.stream.binlog.json_binary import partially_updated
from truecopy.stream.binlog.layouts import layout


@dataclass(frozen=True)
class Image:
    """Which columns the rows of an event hold, by the event's own bitmaps.

    Attributes:
        present: Of the only image of an insert or delete, or of an update's first.
        after: Of an update's second image; None for inserts and deletes.
        keys_only: Give keys only, whatever the rows hold.
        before: Give an update's first image, too; else only the key of it.
        partial: The event is one of MySQL's partial updates of JSON (PARTIAL_UPDATE_ROWS_EVENT).
    """

    present: bytes
    after: bytes | None = None
    keys_only: bool = False
    before: bool = True
    partial: bool = False


class ImageColumns:
    """The columns of one image, in their order; those that are not wanted are passed over."""

    def __init__(self, bitmap: bytes, count: int, prefix: str, wanted: frozenset[int]) -> None:
        self.prefix = prefix
        self.wanted = wanted
        self.present = tuple(i for i in range(count) if bitmap[i >> 3] >> (i & 7) & 1)
        self.marks = (len(self.present) + 7) // 8

    def nulls(self, marks: bytes) -> frozenset[int]:
        """The columns that are NULL; the spare bits at the end mean nothing."""
        return frozenset(
            column for n, column in enumerate(self.present) if marks[n >> 3] >> (n & 7) & 1
        )

    def is_clean(self, marks: bytes) -> bool:
        return len(marks) == self.marks and not self.nulls(marks)

    @property
    def mask(self) -> int:
        return (1 << len(self.present)) - 1


class SourceWriter:
    """Writes and compiles the functions of one table."""

    def __init__(
        self, columns: tuple[LoggedColumn, ...], definition: Definition, image: Image
    ) -> None:
        self.image = image
        self._width = len(columns)
        self._keys = definition.key_places
        self._json = [i for i, column in enumerate(columns) if column.type == logged.JSON]
        keys, everything = frozenset(self._keys), frozenset(range(self._width))
        first = keys if image.after is not None and not image.before else everything
        if image.partial:
            first |= frozenset(
                self._json
            )  # the second image may hold only what has changed of them
        if image.keys_only:
            first = everything = keys
        self.before = ImageColumns(image.present, self._width, "t", first)
        self.after = (
            None if image.after is None else ImageColumns(image.after, self._width, "u", everything)
        )
        if not self.before.present:
            # Such a row has no bytes at all: it could not even be counted.
            raise CannotFinish(
                f"the log of {definition.table} holds rows without a column:"
                " set binlog_row_image = 'FULL' on the source"
            )
        for name, place in zip(definition.key, self._keys, strict=True):
            if place not in self.before.present:
                raise CannotFinish(
                    f"the log of {definition.table} lacks the key's column {name}:"
                    " set binlog_row_image = 'FULL' on the source"
                )
        self._layouts = [
            layout(logged, column)
            for logged, column in zip(columns, definition.columns, strict=True)
        ]
        self._names: dict[str, Any] = {
            "from_bytes": int.from_bytes,
            "partially_updated": partially_updated,
        }
        self._texts, self._raws = [], []
        for i, own in enumerate(self._layouts):
            self._names |= {f"{name}_{i}": value for name, value in own.names.items()}
            self._texts.append(_suffix_names(own.text, own.names, i))
            self._raws.append(_suffix_names(own.raw, own.names, i))
        # The first read of a row may take more than the row has, where it holds NULLs.
        fixed = sum(own.size for own in self._layouts)
        self.longest_read = (
            fixed + self.before.marks + (self.after.marks if self.after else 0) + 256
        )

    def rows_like(self, marks: bytes) -> Callable[..., tuple[int, int]]:
        """A function that reads rows for as long as they begin with these marks."""
        body = self._group_reads(
            self.before, self.before.nulls(marks), [f"if nulls != {_mark(marks)}: break"]
        )
        if self.after is not None:
            body += self._second_image(self.after, marks)
        return self._compile(["while p < end:", *_indent([*body, *self._gather(), "count += 1"])])

    def any_row(self) -> Callable[..., tuple[int, int]]:
        """A function that reads one row, whatever is NULL in it."""
        body = self._single_reads(self.before)
        if self.after is not None:
            if self.image.partial:
                body += self._partial_marks()
            body += self._single_reads(self.after, self.image.partial)
        return self._compile([*body, *self._gather(), "count += 1"])

    def _second_image(self, after: ImageColumns, marks: bytes) -> list[str]:
        """An update's second image mostly has the NULLs of the first."""
        if after.present == self.before.present:
            nulls, condition = self.before.nulls(marks), f"nulls == {_mark(marks)}"
        elif after.marks in _INTEGER_MARKS:
            nulls, condition = frozenset(), f"not nulls & {after.mask}"
        elif not after.marks:
            return []
        else:
            nulls, condition = frozenset(), "not any(nulls)"
        reads = self._group_reads(after, nulls, [f"if {condition}:"])
        start = reads.index(f"if {condition}:") + 1
        return [
            *reads[:start],
            *_indent(reads[start:]),
            "else:",
            *_indent(self._single_reads(after)),
        ]

    def _group_reads(
        self, columns: ImageColumns, nulls: frozenset[int], check: list[str]
    ) -> list[str]:
        """Statements that read an image at `p` with exactly these NULLs, several values at a time."""
        lines: list[str] = []
        texts: list[str] = []
        targets, format_ = (["nulls"], _mark_format(columns.marks)) if columns.marks else ([], "")

        def read(extra: str = "") -> int:
            """Reads what has gathered; how many bytes that is."""
            nonlocal targets, format_, check
            group = Struct("<" + format_ + extra)
            size = Struct("<" + format_).size
            if targets:
                name = self._bind(group.unpack_from)
                lines.append(f"{', '.join(targets)}, = {name}(buf, p)")
            lines.extend(check)
            targets, format_, check = [], "", []
            return size

        for i in columns.present:
            own, name = self._layouts[i], f"{columns.prefix}{i}"
            if i in nulls:
                texts.append(f"{name} = None")
                continue
            variables = [f"{name}_{part}" for part in range(own.parts)]
            wanted = i in columns.wanted
            if not own.sized:
                if wanted:
                    targets += variables
                    format_ += own.format
                    texts.append(f"{name} = {self._texts[i].format(*variables)}")
                else:
                    format_ += f"{own.size}x"
                continue
            targets.append(variables[0])
            if own.format == "B" and wanted:
                # A string of Pascal's: its length in a byte, then itself; never longer than 255.
                size = read("256p") + 1
                lines.append(f"p += {size} + len({name}_0)")
            else:
                targets += variables[1:]
                format_ += own.format
                size = read()
                length = _length(variables)
                if wanted:
                    lines.append(f"q = p + {size} + {length}")
                    lines.append(f"{name}_0 = buf[p + {size}:q]")
                    lines.append("p = q")
                else:
                    lines.append(f"p += {size} + {length}")
            if wanted:
                texts += self._text_of_sized(i, name)
        if format_:
            lines.append(f"p += {read()}")
        return [*lines, *texts]

    def _single_reads(self, columns: ImageColumns, partial: bool = False) -> list[str]:
        """Statements that read an image at `p`, one column after the other."""
        if not columns.marks:
            return []
        lines = [
            f'nulls = from_bytes(buf[p:p + {columns.marks}], "little")',
            f"p += {columns.marks}",
        ]
        for bit, i in enumerate(columns.present):
            own, name = self._layouts[i], f"{columns.prefix}{i}"
            variables = [f"{name}_{part}" for part in range(own.parts)]
            wanted = i in columns.wanted
            reads = [self._single_read(own.format, variables)] if wanted or own.sized else []
            if own.sized:
                reads.append(f"q = p + {own.size} + {_length(variables)}")
                if wanted:
                    reads.append(f"{name}_0 = buf[p + {own.size}:q]")
                    changed = partial and i in self._json
                    reads += self._changed_or_whole(i) if changed else self._text_of_sized(i, name)
                reads.append("p = q")
            else:
                reads.append(f"p += {own.size}")
                if wanted:
                    reads.append(f"{name} = {self._texts[i].format(*variables)}")
            lines += [f"if nulls & {1 << bit}:", f"    {name} = None", "else:", *_indent(reads)]
        return lines

    def _single_read(self, format_: str, variables: Sequence[str]) -> str:
        if format_ == "B":
            return f"{variables[0]} = buf[p]"
        if re.fullmatch(r"\d+s", format_):
            return f"{variables[0]} = buf[p:p + {format_[:-1]}]"
        return f"{', '.join(variables)}, = {self._bind(Struct('<' + format_).unpack_from)}(buf, p)"

    def _text_of_sized(self, i: int, name: str) -> list[str]:
        unpacked = [f"{name}_0 = {self._raws[i].format(f'{name}_0')}"] if self._raws[i] else []
        return [*unpacked, f"{name} = {self._texts[i].format(f'{name}_0')}"]

    def _partial_marks(self) -> list[str]:
        """Between the images: which JSON columns the second one holds only the changes of."""
        size = (len(self._json) + 7) // 8
        return [
            "partial = 0",
            "p += 1",
            "if buf[p - 1] & 1:",
            f'    partial = from_bytes(buf[p:p + {size}], "little")',
            f"    p += {size}",
        ]

    def _changed_or_whole(self, i: int) -> list[str]:
        if i not in self.before.present:
            raise CannotFinish(
                "the log holds changes of a JSON document without the document:"
                " set binlog_row_image = 'FULL' on the source"
            )
        return [
            f"if partial & {1 << self._json.index(i)}:",
            f"    u{i} = partially_updated(t{i}_0, u{i}_0)",
            "else:",
            *_indent(self._text_of_sized(i, f"u{i}")),
        ]

    def _gather(self) -> list[str]:
        """Statements that append a row's texts."""
        lines = []
        after = self.after
        if self._keys:
            lines.append(_append("keys", [f"t{i}" for i in self._keys]))
            # A key column that the second image lacks did not change.
            found = [i for i in self._keys if after and i in after.present]
            if found:
                new = [f"u{i}" if i in found else f"t{i}" for i in self._keys]
                lines.append(f"if {' or '.join(f't{i} != u{i}' for i in found)}:")
                lines.append(f"    moved.append(count); {_append('keys', new)}")
        if self.image.keys_only:
            return lines
        images = [(self.before, "values")]
        if after is not None:
            images = [(self.before, "before")] if self.image.before else []
            images.append((after, "after"))
        for columns, target in images:
            texts = [
                f"{columns.prefix}{i}" if i in columns.present else "None"
                for i in range(self._width)
            ]
            lines.append(_append(target, texts))
        return lines

    def _compile(self, body: list[str]) -> Callable[..., tuple[int, int]]:
        lists = "values" if self.after is None else "before, after, moved"
        source = "\n".join(
            [
                f"def read(buf, p, end, count, keys, {lists}):",
                *_indent([*body, "return p, count"]),
            ]
        )
        exec(compile(source, "<rows>", "exec"), self._names)
        made: Callable[..., tuple[int, int]] = self._names["read"]
        return made

    def _bind(self, value: object) -> str:
        name = f"unpack_{len(self._names)}"
        self._names[name] = value
        return name


_INTEGER_MARKS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _mark_format(size: int) -> str:
    return _INTEGER_MARKS.get(size, f"{size}s")


def _mark(marks: bytes) -> str:
    """NULL marks as what `_mark_format` reads."""
    return str(int.from_bytes(marks, "little")) if len(marks) in _INTEGER_MARKS else repr(marks)


def _append(target: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"{target}.append({texts[0]})"
    return f"{target} += ({', '.join(texts)},)"


def _length(variables: Sequence[str]) -> str:
    return variables[0] if len(variables) == 1 else f"({variables[0]} | {variables[1]} << 16)"


def _indent(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def _suffix_names(text: str, names: Iterable[str], column: int) -> str:
    """Every column has its own names."""
    for name in names:
        text = re.sub(rf"\b{name}\b", f"{name}_{column}", text)
    return text

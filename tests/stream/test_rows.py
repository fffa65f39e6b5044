"""Texts on their way into Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from truecopy.model.errors import CannotFinish
from truecopy.stream.rows import texts_to_arrow


def test_bytes_and_str_alike() -> None:
    found = texts_to_arrow([b"a", "é", None, "é".encode(), b"", ""])
    assert found.type == pa.string()
    assert found.to_pylist() == ["a", "é", None, "é", "", ""]
    assert texts_to_arrow([]).to_pylist() == []
    assert texts_to_arrow([None]).to_pylist() == [None]


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", "\ud800"])
def test_what_is_not_utf8_is_refused(bad: bytes | str) -> None:
    with pytest.raises(CannotFinish, match="not UTF-8"):
        texts_to_arrow([b"good", bad])

"""Whom a validation believes how far the replication is: only what a replica has of this very source counts."""

from __future__ import annotations

import pytest

from truecopy.model.position import contains, parse_position
from truecopy.transfer.continuous.common import common

_A, _B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("replica", "end", "found"),
    [
        (f"{_A}:1-5,{_B}:1-2", f"{_A}:1-9", f"{_A}:1-5"),
        (f"{_A}:1-5:8-20", f"{_A}:3-9:12", f"{_A}:3-5:8-9:12"),
        (f"{_B}:1-2", f"{_A}:1-9", ""),
        ("0-1-5,7-9-1", "0-1-9,3-1-1", "0-1-5"),
        ("7-9-1", "0-1-9", ""),
        ("0/15", "0/20", "0/15"),
        ("0/15", "0-1-9", ""),
    ],
)
def test_what_a_replica_has_of_a_source(replica: str, end: str, found: str) -> None:
    ends = parse_position(end)
    have = common(parse_position(replica), ends)
    assert str(have) == found
    assert contains(ends, have)

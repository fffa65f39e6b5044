"""A folder of files gives way to another one, in one step for whoever lists it."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from truecopy.engines.lake_tables import make_durable
from truecopy.model.errors import CannotFinish

_EXCHANGE, _HERE = 2, -100


def finish_swap(new: Path, day: Path, gone: Sequence[str]) -> None:
    """Puts a new folder into the place of another, with what that has beside the files that are gone.

    Done again, it changes nothing.
    """
    mark = f"_{new.name}"
    if new.exists() and not (day / mark).exists():
        for path in day.iterdir() if day.exists() else ():
            if path.name not in gone and not (new / path.name).exists():
                os.link(path, new / path.name)
        (new / mark).touch()
        make_durable(new)
        exchange(new, day)
        make_durable(day.parent)
    shutil.rmtree(new, ignore_errors=True)
    (day / mark).unlink(missing_ok=True)


def exchange(new: Path, old: Path) -> None:
    """Two folders change places: in one step on Linux, elsewhere with an instant in which the old one is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    if old.exists() and hasattr(libc, "renameat2"):
        if not libc.renameat2(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _EXCHANGE):
            return
        if (number := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise CannotFinish(f"{old}: {os.strerror(number)}")
    aside = new.with_name(f"{new.name}.old")
    if old.exists():
        old.rename(aside)
    new.rename(old)
    shutil.rmtree(aside, ignore_errors=True)

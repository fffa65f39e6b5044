"""The work folder: a local path, or a place that `pyarrow.fs` opens by its URI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs

from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.log import LogGone


@dataclass(frozen=True)
class Folder:
    """Files of one stream.

    Attributes:
        where: As the user names it.
        local: Files can be appended to and cut; elsewhere a file is written once and whole.
    """

    where: str
    files: pa_fs.FileSystem
    root: str
    local: bool

    def path(self, name: str) -> Path:
        """A file of a local folder."""
        return Path(self.root) / name

    def make(self) -> None:
        if self.local:
            # Rows of a database are as private as the database.
            Path(self.root).mkdir(parents=True, exist_ok=True, mode=0o700)
        else:
            self.files.create_dir(self.root, recursive=True)

    def names(self, suffix: str) -> list[str]:
        """Files whose name ends so, in order."""
        selector = pa_fs.FileSelector(self.root, allow_not_found=True)
        found = (info.base_name for info in self.files.get_file_info(selector) if info.is_file)
        return sorted(name for name in found if name.endswith(suffix))

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """Bytes of a file; None where there is none."""
        try:
            with self.open(name) as file:
                file.seek(start)
                return bytes(file.read() if size is None else file.read(size))
        except FileNotFoundError:
            return None

    @contextmanager
    def open(self, name: str) -> Iterator[pa.NativeFile]:
        """A file for reading; `FileNotFoundError` where there is none."""
        with self.files.open_input_file(f"{self.root}/{name}") as file:
            yield file

    def write(self, name: str, data: bytes) -> None:
        """A whole file, durable and never seen in part."""
        if not self.local:
            with self.files.open_output_stream(f"{self.root}/{name}") as stream:
                stream.write(data)
            return
        temporary = self.path(f"{name}.new")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path(name))
        sync_folder(Path(self.root))

    def upload(self, source: Path, name: str) -> None:
        """A local file, as a file of this folder."""
        with (
            source.open("rb") as file,
            self.files.open_output_stream(f"{self.root}/{name}") as stream,
        ):
            while block := file.read(1 << 20):
                stream.write(block)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.delete_file(f"{self.root}/{name}")

    def lacks(self, what: str) -> LogGone:
        """The error for a file that should be there."""
        if self.files.get_file_info(self.root).type == pa_fs.FileType.NotFound:
            return LogGone(
                f"the work folder {self.where} is not on this machine: name one that all machines reach,"
                " such as work=s3://…"
            )
        return LogGone(f"the work folder {self.where} no longer holds {what}: it was released")

    def clear(self) -> None:
        """Removes the folder with all that is in it."""
        with suppress(FileNotFoundError):
            self.files.delete_dir(self.root)


@lru_cache
def open_folder(where: str) -> Folder:
    """The folder of that name, which need not exist yet."""
    if "://" not in where:
        return Folder(where, pa_fs.LocalFileSystem(), str(Path(where).absolute()), local=True)
    try:
        files, root = pa_fs.FileSystem.from_uri(where)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"cannot open the work folder {where}: {error}") from None
    except OSError as error:
        raise CannotFinish(f"cannot open the work folder {where}: {error}") from None
    return Folder(where, files, root, isinstance(files, pa_fs.LocalFileSystem))


def sync_folder(path: Path) -> None:
    """Makes new names in a folder durable, as `fsync` does for the bytes of a file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

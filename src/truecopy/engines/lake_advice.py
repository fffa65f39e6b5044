"""What a lake that tasks write says before rows move."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from truecopy.engines.advice import NO_NUMBERS, Arrival, Uncarried
from truecopy.engines.file_advice import FileAdvisor
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.guarantees import TargetLevel


class LakeAdvisor(FileAdvisor):
    """A folder. Rows of one table and its progress are written in one go, those of several tables are not."""

    target_level = TargetLevel.LOGICAL_CLOCK
    holds = frozenset({NO_NUMBERS})
    byte_size = "strlen(CAST({} AS VARCHAR))"

    def missing_rights(self, arrival: Arrival) -> Iterator[Finding]:  # noqa: ARG002
        if not os.access(self._path, os.W_OK):
            yield Finding(
                Level.ERROR,
                Subject.RIGHTS,
                f"{self._path} may not be written to",
                f"chmod u+w '{self._path}', as its owner",
            )

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self._path).free

    def space_hint(self) -> str:
        return f"df -h {self._path}"

    def inventory(self) -> list[Uncarried]:
        return []

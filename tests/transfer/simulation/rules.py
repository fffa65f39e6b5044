"""The rules that a transfer keeps, each with what breaking it means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Broken(Enum):
    """One rule, broken on purpose; a transfer stands on the first five, and the others came up in schedules."""

    POSITION_AFTER_FIRST_CHUNK = "the start of the stream is taken after the first chunk was read"
    LOG_POSITION = "the start of the stream is the end of the log, not a visibility point"
    STALE_ROW_OVERWRITES = "a chunk that comes late overwrites what is there"
    PROGRESS_APART = "progress moves in a transaction of its own, after the rows"
    NO_EPOCH = "a new driver does not take a new epoch"
    KEYLESS_FROM_START = (
        "rows without a key are replayed from the start of the copy, not from their snapshot"
    )
    STREAM_REWOUND = "a stream begins again further back, and what the parts hold is not asked anew"
    LINE_GOES_BACK = "a part that is beyond a batch is put where the batch ends"
    UNFENCED_ROWS = (
        "at most once: the rows that follow the progress are written without looking again"
    )
    NO_LINE_OF_SHARD = "a run goes on where the lines stand, and none stands for parts without one"
    OPENED_BY_ANYBODY = "whoever was replaced can still open a line of progress"
    OPEN_LINES = "the lines of a shard that was left can still be written under"
    SET_FOR_COUNT = "the reverify store forgets a key, not the changes that were compared"
    UNSEEN_REVERIFIED = "a change counts as compared before the source shows it"
    LAST_WRITES_UNWATCHED = "the target verifier stops before the last write"
    NO_PASS_AT_CUTOVER = "all rows are not compared once more before a cutover"
    SLICED_BY_SPELLING = "keys are sliced by their bytes where the target takes several for one"
    MERGED_APART = (
        "tables that are merged into one move on apart, and a row goes from one to another"
    )


@dataclass(frozen=True)
class Case:
    """What a schedule runs under.

    Attributes:
        has_transactions: Whether the target can write rows and progress in one transaction. One that cannot
            is only appended to.
        verify: `none`, `checksum`, `iterative`, `inline`, or `full` for inline and target verifier.
        has_faults: Somebody else writes into the target, or the writer itself is wrong.
        has_names: The source calls a row otherwise now and then, and the target does not tell the names apart: the key
            is spelled in another way, or the row is in another one of the tables that are merged.
    """

    delivery: str
    consistency: str
    verify: str
    has_transactions: bool = True
    has_faults: bool = False
    reshards: bool = False
    has_names: bool = False
    broken: Broken | None = None

"""What the runs of a task leave behind, in words."""

import pytest

from truecopy.tasks.commands import CHECK, QUERIES, RUN, VERIFY, Files, outcome


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (VERIFY, 0, ""),
        (VERIFY, 1, "differences"),
        (QUERIES, 1, "differences"),
        (CHECK, 1, "not ready"),
        (RUN, 3, "it ended with exit code 3"),
        (RUN, -9, "it was ended by signal 9"),
        (RUN, None, "it ended while nobody watched it"),
    ],
)
def test_a_run_that_said_nothing_is_told_by_its_exit_code(
    kind: str, code: int | None, said: str
) -> None:
    assert outcome(kind, Files.of("nothing-said", 1), code).message == said

"""From a task file to how its target takes over."""

from __future__ import annotations

from truecopy.tasks.file import Task
from truecopy.tasks.transfer import chosen_verifiers
from truecopy.transfer.cutover.settings import Callback, Commands, How


def cutover_settings(task: Task) -> How:
    """How the task is to be cut over, and proven."""
    asked, commands = task.cutover, task.cutover.commands
    callback = asked.callback
    return How(
        lock=asked.lock,
        max_lag=asked.max_lag,
        max_wait=asked.max_wait,
        max_downtime=asked.max_downtime,
        sequences=asked.sequences,
        reverse=asked.reverse,
        commands=Commands(
            commands.hold or "",
            commands.release or "",
            commands.switch or "",
            commands.attempts,
        ),
        callback=Callback(callback.url, callback.attempts, callback.timeout) if callback else None,
        verify=chosen_verifiers(task.verify),
    )

"""Task files and suites that come as text: read as the commands read them, and refused where they hold a secret."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from truecopy.metastore.tasks import SUITE, TASK, TaskLine
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.secret import Secret
from truecopy.stream.yaml_file import read_yaml
from truecopy.tasks.commands import QUERIES, RUN, VALIDATE, task_folder, write_task_file
from truecopy.tasks.ends import Address
from truecopy.tasks.file import Task, load_task
from truecopy.tasks.problems import TaskFileError

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
"""Of what is named in addresses and files."""
_LETTERS = "at most 64 letters of ASCII, digits, points, - and _, no point or - first"
_OF_SECRETS = re.compile(r"pass|secret|token|credential|access[._-]?key", re.IGNORECASE)
_HIDDEN = "***"
_NAMED = "1"


@contextmanager
def read_task(text: str) -> Iterator[Task]:
    """The task of a text that comes from outside; its file is there while the block runs."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=task_folder(), prefix="new-", suffix=".yaml"
    ) as file:
        file.write(text)
        file.flush()
        try:
            task = load_task(file.name)
        except TaskFileError as error:
            raise TaskFileError("the file", error.problems) from None
        except UsageError as error:
            raise UsageError(str(error).replace(file.name, "as YAML")) from None
        if not re.fullmatch(NAME, task.task):
            raise TaskFileError("the file", [f"task: {_LETTERS}"])
        if problems := list(_secrets_in(task)):
            raise TaskFileError("the file", problems)
        if task.metastore is not None:
            raise TaskFileError(
                "the file", ["metastore: leave it out: the server's own metastore keeps its tasks"]
            )
        yield task


def kept_task(line: TaskLine) -> Task:
    """The task that a metastore keeps, with its file beside it."""
    return load_task(write_task_file(line.kind, line.name, line.text))


def task_line(task: Task, text: str, master: str, who: str) -> TaskLine:
    """What the metastore keeps of a task that was accepted."""
    hook = task.webhook
    told = {"url": hook.url.reference, "events": list(hook.events)} if hook else {}
    command = VALIDATE if task.validate_only else RUN
    return TaskLine(task.task, TASK, text, command, master, told, made_by=who)


def suite_line(name: str, text: str, who: str) -> TaskLine:
    """What the metastore keeps of a suite of queries; one that holds a password is refused."""
    from truecopy.queries.suite_file import read_head

    if not re.fullmatch(NAME, name):
        raise UsageError(f"the suite's name: {_LETTERS}")
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=task_folder(), prefix="new-", suffix=".yaml"
    ) as file:
        file.write(text)
        file.flush()
        try:
            head = read_head(file.name)
            document = read_yaml(file.name, "the suite")
        except TruecopyError as error:
            raise UsageError(str(error).replace(file.name, "the suite")) from None
    if head.control is None or head.test is None:
        raise UsageError("the suite: name both ends: control: and test:")
    if _is_secret_inside(document):
        raise UsageError(
            "the suite: a password in the file: write ${NAME}, a variable of the server's environment"
        )
    return TaskLine(name, SUITE, text, QUERIES, made_by=who)


def shown_text(task: Task, text: str) -> str:
    """The file without addresses that may hold a token."""
    for secret in (
        task.webhook and task.webhook.url,
        task.cutover.callback and task.cutover.callback.url,
    ):
        if secret and not _is_reference(secret):
            text = text.replace(secret.reference, _HIDDEN)
    return text


def _secrets_in(task: Task) -> Iterator[str]:
    """What must not be kept: a line for each."""
    remedy = "write ${NAME}, a variable of the server's environment, or file:/path"
    ends = {"source": task.source, "target": task.target}
    for name, end in ends.items():
        if isinstance(end, Address):
            if _holds_secret(end.url.reference):
                yield f"{name}: a password in the file: {remedy}"
            if end.password is not None and not _is_reference(end.password):
                yield f"{name}.password: a password in the file: {remedy}"
        else:
            for shard, one in end.shards.items():
                if any(_holds_secret(server.reference) for server in one.servers):
                    yield f"{name}.shards.{shard}: a password in the file: {remedy}"
    for replica in task.throttle.replicas:
        written = replica.password is not None and not _is_reference(replica.password)
        if written or _holds_secret(replica.url.reference):
            yield f"throttle.replicas: a password in the file: {remedy}"
    for section, settings in (("spark", task.spark.settings), ("stream", task.stream.settings)):
        for name, value in settings.items():
            if _OF_SECRETS.search(name) and not _is_reference(Secret(value)):
                yield f"{section}.settings.{name}: a secret in the file: set it where the server runs"
    if task.mask_key is not None and not _is_reference(task.mask_key):
        yield f"mask-key: a secret in the file: {remedy}"
    for table, rules in task.transformers.items():
        for column, rule in rules.mask.items():
            if rule.key is not None and not _is_reference(rule.key):
                yield f"transformers.{table}.mask.{column}.key: a secret in the file: {remedy}"


def _is_secret_inside(document: object, name: object = "") -> bool:
    """Whether a document holds a password, or a URL with one, wherever that may be."""
    if isinstance(document, Mapping):
        return any(_is_secret_inside(value, key) for key, value in document.items())
    if isinstance(document, list):
        return any(_is_secret_inside(value) for value in document)
    if not isinstance(document, str):
        return False
    is_open = name == "password" and not _is_reference(Secret(document))
    return is_open or ("://" in document and _holds_secret(document))


def _is_reference(secret: Secret) -> bool:
    return secret.reference.startswith("file:") or "${" in secret.reference


def _holds_secret(url: str) -> bool:
    """Whether something in a URL is secret and is written out."""
    try:
        found = parse_endpoint(url, _Named())
    except (TruecopyError, ValueError):
        return False  # whoever opens it says what is wrong with it
    places = {value for name, value in found.options if name.endswith("_file")}
    return bool(set(found.secrets) - places - {_NAMED})


class _Named(Mapping[str, str]):
    """An environment in which every variable is set."""

    def __getitem__(self, _: str) -> str:
        return _NAMED

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

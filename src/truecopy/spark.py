"""The Spark session: the one place that sets every Spark setting."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from truecopy import ending
from truecopy.model.errors import CannotFinish, KeyTaken, TruecopyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
REDACTED_OPTIONS = "(?i)url|endpoint|keyspace|password|secret|token"
_chosen: list[str] = []
_chosen_settings: dict[str, str] = {}
_SHIPPED_AS = "truecopy_packages"
# Spark brings these itself; the rest of what the package needs travels with the job.
_NOT_SHIPPED = {"pyspark", "py4j"}
_SHIPPED_EXTRAS = {"truecopy": ("mysql", "postgresql", "duckdb", "delta"), "psycopg": ("binary",)}
"""What is there only if it was asked for, and then is needed by executors, too."""
_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_KINDS: dict[str, type[TruecopyError]] = {
    "UsageError": UsageError,
    "IncomparableTypes": UsageError,
    "DuplicateRow": KeyTaken,
}
"""What errors of ours are again that came through Spark as a text; others are `CannotFinish`."""
_OWN = "org.apache.spark.SparkException: "
"""Before what Spark says itself, and before what it wraps that in."""
_JVM = " ".join(
    (
        # Most memory is the Python workers'; a heap with little room to spare costs next to no time. By itself it
        # would begin with a share of the machine's memory, and fill that before anything is cleared away.
        "-XX:+UseSerialGC -XX:InitialHeapSize=256m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=30",
        # About what Spark's classes take; on the way there each step would clear the whole heap.
        "-XX:MetaspaceSize=128m",
        # Ten times the defaults. Rows pass the JVM packed, or not at all: what it runs a thousand times is planning,
        # and to compile that to the utmost took longer than to run it. Loops over millions of rows get there yet.
        "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000",
    )
)


def state_folder() -> Path:
    """Where logs, checkpoints and certificates are kept: `TRUECOPY_STATE`, or the user's state folder."""
    base = os.environ.get("TRUECOPY_STATE")
    if not base:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        base = str(Path(home) / "truecopy")
    folder = Path(base)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def log_file() -> Path:
    """The file that takes Spark's own messages and whole stack traces."""
    return state_folder() / "spark.log"


def session(master: str | None = None) -> SparkSession:
    """The running session, or a new one on `master` (default: all cores of this machine)."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java = _find_java()
    settings = _settings(master or default_master())
    _launch_jvm(java, settings)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    started: SparkSession = builder.getOrCreate()
    started.sparkContext.setLogLevel("WARN")
    # They would print whole traces beside the one line that the user gets.
    for name in ("SQLQueryContextLogger", "py4j.clientserver"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return started


def default_master() -> str:
    """All cores, and four attempts per task: `local[N]` alone fails a job with its first lost worker."""
    chosen = _chosen[-1] if _chosen else os.environ.get("TRUECOPY_MASTER")
    return chosen or f"local[{os.cpu_count() or 1},4]"


def choose_master(master: str) -> None:
    """What `session` starts on from now on, whoever asks for it first (a lake asks when it is opened)."""
    _chosen.append(master)


def choose_settings(settings: Mapping[str, str]) -> None:
    """Settings by name that `session` starts with, over our own; a session that runs keeps those that it has."""
    _chosen_settings.update(settings)


def is_local(master: str) -> bool:
    """Whether executors are threads of this machine."""
    return master.startswith("local")


@cache
def spare_the_collector(after: str) -> None:  # noqa: ARG001 - once for each
    """Takes what a worker has loaded by now out of garbage collection, once after each kind of work.

    Spark's daemon collects after every task, which with these libraries takes as long as many a task.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def explained() -> Iterator[None]:
    """A block whose failed jobs become one line each."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise explain_spark(error) from error


def explain_spark(error: BaseException) -> TruecopyError:
    """The cause of a failed job in one line; the whole trace is in the log file."""
    if why := ending.reason():
        return CannotFinish(why)
    log = log_file()
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{error}\n")
    if ours := re.search(r"truecopy\.[a-z_.]+\.([A-Z]\w+): (.*)", str(error)):
        return _KINDS.get(ours[1], CannotFinish)(ours[2])
    lines = [re.sub(r"^(Caused by)?: ", "", line.strip()) for line in str(error).splitlines()]
    causes = [line for line in lines if "Error:" in line or "Exception:" in line]
    others = (
        line for line in causes if not line.startswith(("at ", "py4j", "org.apache.spark.Spark"))
    )
    # Of a chain of its own, the innermost tells what happened.
    own = (line.removeprefix(_OWN) for line in reversed(causes) if line.startswith(_OWN))
    said = next(chain(others, own, filter(None, lines)), type(error).__name__)
    return CannotFinish(f"a Spark task failed: {said[:300]} (the whole trace is in {log})")


def _settings(master: str) -> dict[str, str]:
    if master == "local" or re.fullmatch(r"local\[[^,\]]+\]", master):
        cores = master[6:-1] if "[" in master else "1"
        master = f"local[{cores},4]"
    settings = {
        "spark.master": master,
        "spark.app.name": "truecopy",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        # A source's options show in plans; the URL of a database may hold a password.
        "spark.sql.redaction.options.regex": REDACTED_OPTIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.sql.warehouse.dir": str(state_folder() / "warehouse"),
        "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
        "spark.sql.timeType.enabled": "true",
        # A block of a mask's key (`truecopy.mapping.transformers`), where Spark prints a plan.
        "spark.redaction.string.regex": "[0-9A-Fa-f]{128}",
        "spark.python.worker.reuse": "true",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
            f" -Dtruecopy.log={log_file()} -Duser.timezone=UTC"
            f" {_JVM}"
        ),
    }
    if is_local(master):
        # The default one takes 30 ms for each of the two files of a batch, this one 8.
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINTS
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        settings["spark.archives"] = f"{_pack_packages()}#{_SHIPPED_AS}"
        settings["spark.executorEnv.PYTHONPATH"] = f"./{_SHIPPED_AS}"
        settings["spark.executor.extraJavaOptions"] = "-Duser.timezone=UTC"
        os.environ.setdefault("PYSPARK_PYTHON", f"python3.{sys.version_info.minor}")
        # Sources are planned here by the executors' Python, which finds our packages by this alone.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if Path(path).is_dir())
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return settings | _chosen_settings


def _launch_jvm(java: str, settings: dict[str, str]) -> None:
    """Starts Spark's JVM with its output, and that of its Python workers, in the log file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    os.environ["JAVA_HOME"] = java
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    with log_file().open("ab") as log:
        start: Callable[..., JavaGateway] = launch_gateway  # untyped in PySpark
        # A signal to the whole group of processes is for the driver, which then stops its jobs itself.
        options = {"stdout": log, "stderr": log, "start_new_session": True}
        gateway = start(conf, popen_kwargs=options)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _find_java() -> str:
    """The home of a Java that Spark runs on, or one line that says what to install."""
    remedy = (
        "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
        " or set JAVA_HOME"
    )
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not program or not Path(program).exists():
        raise UsageError(f"Spark needs Java {OLDEST_JAVA} or newer and none was found: {remedy}")
    asked = [program, "-version"]
    said = subprocess.run(asked, capture_output=True, errors="replace", check=False).stderr
    match = re.search(r'version "(\d+)', said)
    if not match or int(match[1]) < OLDEST_JAVA:
        found = match[1] if match else "unknown"
        raise UsageError(
            f"Spark needs Java {OLDEST_JAVA} or newer, {program} is version {found}: {remedy}"
        )
    return str(Path(program).resolve().parent.parent)


def _pack_packages() -> Path:
    """An archive of this package and what it needs, which the executors of a cluster unpack.

    Made once per set of versions and kept: a hundred megabytes of libraries do not change often.
    """
    wanted = _distributions("truecopy", {})
    source = Path(__file__).parent
    stamp = hashlib.sha256(repr(sorted((d.name, d.version) for d in wanted.values())).encode())
    for file in sorted(source.rglob("*.py")):
        stamp.update(file.read_bytes())
    archive = state_folder() / f"packages-{stamp.hexdigest()[:16]}.zip"
    if archive.exists():
        return archive
    with (
        tempfile.NamedTemporaryFile(dir=archive.parent, suffix=".zip", delete=False) as unfinished,
        zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as pack,
    ):
        for package in wanted.values():
            for path in package.files or ():
                if ".." not in path.parts and "__pycache__" not in path.parts:
                    pack.write(str(path.locate()), str(path))
        packed = set(pack.namelist())
        for file in source.rglob(
            "*"
        ):  # where the package is installed in place, no list names its files
            name = str(Path("truecopy") / file.relative_to(source))
            if file.is_file() and "__pycache__" not in file.parts and name not in packed:
                pack.write(file, name)
    Path(unfinished.name).replace(archive)
    return archive


def _distributions(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found or key in _NOT_SHIPPED:
        return found
    try:
        found[key] = distribution(name)
    except PackageNotFoundError:
        return found
    for requirement in found[key].requires or ():
        match = re.match(r"[\w.-]+(\[[^\]]*\])?", requirement)
        wanted_by_extra = re.search(r"extra\s*==\s*['\"](\w+)", requirement)
        extras = _SHIPPED_EXTRAS.get(key, ())
        if match and (not wanted_by_extra or wanted_by_extra[1] in extras):
            _distributions(match[0].split("[")[0], found)
    return found

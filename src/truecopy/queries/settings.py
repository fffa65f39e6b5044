"""What a run of a suite is told: one value, from which every stage takes what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from truecopy.queries.query import Override


@dataclass(frozen=True)
class Settings:
    """Choices of a run; the defaults follow the Presto Verifier's where those are sound.

    Attributes:
        scratch: Scratch schema of control and of test; None is the engine's default.
        read_only: Write nothing: checksums are taken over the query itself.
        skip_control: Run the test side only, to see whether queries run at all.
        skip_checksum: Run both sides, compare nothing but the columns.
        explain: Ask both engines for their plans; run nothing.
        timeout, checksum_timeout, metadata_timeout: Seconds for one statement of a kind.
        retries: Further tries of a statement after a failure that passes, each after `backoff` seconds,
            doubled every time.
        resubmissions: How often a whole query starts again when its scratch tables or its server went away.
        relative_margin: |c - t| / ((|c| + |t|) / 2) must be below it.
        absolute_margin: Sums and differences below it count as zero.
        ordered_arrays: Compare arrays in their order.
        reruns: Further runs of control that may show it to be non-deterministic.
        nondeterministic_catalogs: Catalogs (or schemas) whose queries may change at any time.
        max_slowdown, max_cpu: The test side may take so many times what control took.
        min_seconds: Times below it are noise, and no regression.
        sample: Differing rows that a result carries at most.
        driver_rows: Rows among which differing ones are looked for here; more are left to Spark.
        ignored_functions: Functions whose results are known to differ.
        substitutes: SQL by the name of a function that is replaced by it; `{0}`, `{1}`, … are arguments.
    """

    scratch: tuple[str | None, str | None] = (None, None)
    overrides: tuple[Override, Override] = (Override(), Override())
    read_only: bool = False
    skip_control: bool = False
    skip_checksum: bool = False
    explain: bool = False
    plans: bool = False
    concurrency: int = 4
    suite_repetitions: int = 1
    query_repetitions: int = 1
    timeout: float = 3600.0
    checksum_timeout: float = 1800.0
    metadata_timeout: float = 180.0
    retries: int = 3
    backoff: float = 0.5
    resubmissions: int = 2
    relative_margin: float = 1e-4
    absolute_margin: float = 1e-12
    ordered_arrays: bool = False
    reruns: int = 2
    nondeterministic_catalogs: tuple[str, ...] = ()
    max_slowdown: float | None = None
    max_cpu: float | None = None
    min_seconds: float = 0.1
    sample: int = 20
    driver_rows: int = 20_000
    allow: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ignored_functions: tuple[str, ...] = ()
    substitutes: Mapping[str, str] = field(default_factory=dict)
    filters: tuple[str, ...] = ()
    rewriter: str = "sqlglot"
    comparator: str = "checksums"
    determinism: str = "reruns"
    retry: str = "passing"
    resolvers: tuple[str, ...] = (
        "memory",
        "time-limit",
        "ignored-functions",
        "decimal-scale",
        "structured-floats",
    )
    sinks: tuple[str, ...] = ()

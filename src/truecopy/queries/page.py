"""The report of a run as one page of HTML, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from truecopy.queries.result import QueryResult, Status

_ORDER = (Status.FAILED, Status.FAILED_RESOLVED, Status.SKIPPED, Status.SUCCEEDED)


def render_page(results: Sequence[QueryResult]) -> str:
    """Verdicts, both plans, times, CPU and the differing rows."""
    counts = {str(s): sum(result.status is s for result in results) for s in Status}
    # They came as they were ready; what asks for a look goes first.
    ordered = sorted(results, key=lambda r: (_ORDER.index(r.status), r.suite, r.name, r.repetition))
    return _templates().get_template("report.html.j2").render(results=ordered, counts=counts)


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("truecopy.queries"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

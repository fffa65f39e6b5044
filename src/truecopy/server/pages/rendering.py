"""Templates into answers: who looks, what was said last, and the words that all pages share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from truecopy.metastore.tokens import ADMIN, OPERATE
from truecopy.server.identity import Who
from truecopy.tasks.commands import what_was_found
from truecopy.verify.page import VERDICTS, count, duration

_SAID = "truecopy_said"
"""The cookie that carries what came of a change to the page after it."""
_LONGEST = 1500
_HEADERS = {"Referrer-Policy": "same-origin"}
"""Under a stricter one browsers do not say from which site a form comes, and the guard wants to know."""


def show(
    request: Request, who: Who | None, template: str, code: int = 200, **context: Any
) -> HTMLResponse:
    """A page for whoever asks; None: nobody knows who."""
    said = unquote(request.cookies.get(_SAID, ""))
    answer = HTMLResponse(
        _templates()
        .get_template(f"{template}.html.j2")
        .render(
            who=who,
            operates=who is not None and who.may(OPERATE),
            administers=who is not None and who.may(ADMIN),
            csrf=who.csrf if who is not None and who.session else "",
            said=said[:_LONGEST],
            path=request.url.path,
            **context,
        ),
        code,
        _HEADERS,
    )
    if said:
        answer.delete_cookie(_SAID)
    return answer


def go(path: str, said: str = "") -> RedirectResponse:
    """To a page after a change, with what came of it: loading it again does nothing again."""
    answer = RedirectResponse(path, 303)
    if said:
        text = quote(said[:_LONGEST], safe="")
        answer.set_cookie(_SAID, text, max_age=30, httponly=True, samesite="strict")
    return answer


def moment(text: str | None) -> str:
    """A time of the API as people read it."""
    if not text:
        return "–"  # noqa: RUF001 - a dash
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")


def seconds(value: float | None) -> str:
    """A lag or a duration; nothing known is a dash."""
    return "–" if value is None else duration(value)  # noqa: RUF001 - a dash


def rate(value: float) -> str:
    """How many a second."""
    return f"{value:,.0f}/s" if value >= 10 or not value else f"{value:.1f}/s"


def share(part: float, whole: float) -> int:
    """How many percent; nothing of nothing is none."""
    return min(int(100 * part / whole), 100) if whole else 0


@cache
def _templates() -> Environment:
    environment = Environment(
        # The report shows values, and a certificate, in the same way.
        loader=ChoiceLoader(
            [PackageLoader("truecopy.server.pages"), PackageLoader("truecopy.verify")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    words: Mapping[str, Any] = {
        "VERDICTS": VERDICTS,
        "what_was_found": what_was_found,
        "VERSION": version("truecopy"),
        "count": count,
        "share": share,
    }
    environment.globals |= words
    environment.filters |= {
        "number": "{:,}".format,
        "moment": moment,
        "seconds": seconds,
        "rate": rate,
        "path": lambda text: quote(str(text), safe=""),
    }
    return environment

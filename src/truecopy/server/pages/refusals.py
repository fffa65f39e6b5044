"""What a page says when nothing comes of a request: why, and where to go from there."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import HTTPException, Request, Response

from truecopy.server.identity import Who, asking
from truecopy.server.pages.rendering import show

_TITLES = {
    401: "Sign in",
    403: "Not allowed",
    404: "There is no such page",
    405: "That cannot be asked for here",
    409: "Not now",
    413: "Too much at once",
    422: "That makes no sense",
    429: "Too many requests",
    503: "The metastore does not answer",
}


def wants_page(request: Request) -> bool:
    """Whether a person looks at the answer."""
    is_api = request.url.path.startswith(("/api/", "/metrics", "/healthz", "/openapi.json"))
    return not is_api and "text/html" in request.headers.get("accept", "")


def refuse(request: Request, status: int, error: str, problems: Sequence[str]) -> Response:
    """The page of a refusal; whoever is not known is asked to sign in, and is told nothing."""
    if status == 401:
        back = request.url.path if request.method == "GET" else "/"
        why = "" if "is needed" in error else error
        return show(request, None, "sign_in", status, back=back, error=why)
    return show(
        request,
        _known(request),
        "refusal",
        status,
        title=_TITLES.get(status, "That did not work"),
        error=error,
        problems=problems,
        back=_above(request.url.path),
    )


def _above(path: str) -> str:
    """The page that a path is under."""
    above = path.rpartition("/")[0]
    if above.startswith("/tokens"):
        return "/tokens"  # one has no page of its own
    return "/" if above in ("", "/tasks", "/runs", "/static") else above


def _known(request: Request) -> Who | None:
    try:
        return asking(request)
    except HTTPException:
        return None

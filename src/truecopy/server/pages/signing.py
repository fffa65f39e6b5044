"""Signing in with a token, and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from truecopy.server.identity import Doorkeeper
from truecopy.server.pages.forms import Form, Views, posted
from truecopy.server.pages.rendering import go, show

router = APIRouter()


@router.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    """Asks for a token."""
    return show(request, None, "sign_in", back="/", error="")


@router.post("/sign-in", name="log_in")
def sign_in(request: Request, form: Annotated[Form, Depends(posted)]) -> Response:
    """Exchanges a token for a session."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    back = _own(form.text("back"))
    answer = go(back)
    try:
        who = doorkeeper.log_in(request, answer, form.text("token").strip())
    except HTTPException as error:
        request.state.outcome = f"{error.status_code} {error.detail}"
        said = str(error.detail)
        return show(request, None, "sign_in", error.status_code, back=back, error=said)
    request.state.who = (who.name, who.role)
    return answer


@router.post("/sign-out", name="log_out")
def sign_out(request: Request, _: Views) -> Response:
    """Ends a session."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    answer = go("/sign-in")
    doorkeeper.log_out(request, answer)
    return answer


def _own(path: str) -> str:
    """A path of this server; anything else is its first page."""
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_own and path.isprintable() else "/"

"""Styles and scripts, from this package and from the report's, whose look is the same; nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, HTTPException, Response

router = APIRouter(prefix="/static")
_PLACES = {
    "look.css": "truecopy.verify/templates",
    "picture.css": "truecopy.verify/templates",
    "certificate.css": "truecopy.verify/templates",
    "pages.css": "truecopy.server.pages/static",
    "live.js": "truecopy.server.pages/static",
    "forms.js": "truecopy.server.pages/static",
    "icon.svg": "truecopy.server.pages/static",
}
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@router.get("/{name}")
def static_file(name: str) -> Response:
    """One of the few that there are; for anybody, since the first page needs them, too."""
    if name not in _PLACES:
        raise HTTPException(404, "there is no such file")
    return Response(_text(name), media_type=_TYPES[name.rpartition(".")[2]])


@cache
def _text(name: str) -> str:
    package, folder = _PLACES[name].split("/")
    return (files(package) / folder / name).read_text(encoding="utf-8")

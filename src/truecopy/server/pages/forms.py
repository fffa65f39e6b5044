"""What a form of a page sends, and whether whoever sends it may."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, HTTPException, Request

from truecopy.metastore.tokens import ADMIN, OPERATE, VIEW
from truecopy.server.identity import Who, needs

_FIELDS = 2000


@dataclass(frozen=True)
class Form:
    """The fields of a form, each with what was given for it."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        return self.fields.get(name, [""])[-1]

    def has(self, name: str) -> bool:
        return name in self.fields

    def numbers(self, name: str) -> list[int]:
        """Those that are numbers; boxes that were ticked send nothing else."""
        return [int(one) for one in self.fields.get(name, ()) if one.isascii() and one.isdecimal()]


@dataclass(frozen=True)
class Acting:
    """Whoever sent a form, and the form."""

    who: Who
    form: Form


async def posted(request: Request) -> Form:
    """The form of a request; its hidden token is what the doorkeeper asks for."""
    try:
        text = (await request.body()).decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None
    form = Form({name: [_lines(one) for one in given] for name, given in fields.items()})
    request.state.csrf = form.text("csrf")
    return form


def _lines(text: str) -> str:
    """With line ends as files have them; browsers send others."""
    return text.replace("\r\n", "\n").replace("\x00", "")


def _acting(role: str) -> Callable[[Request, Form], Acting]:
    require = needs(role)

    def act(request: Request, form: Annotated[Form, Depends(posted)]) -> Acting:
        return Acting(require(request), form)

    return act


Views = Annotated[Acting, Depends(_acting(VIEW))]
Operates = Annotated[Acting, Depends(_acting(OPERATE))]
Administers = Annotated[Acting, Depends(_acting(ADMIN))]

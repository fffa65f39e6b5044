"""What the routes of the API have in common."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from truecopy.server.control import Control
from truecopy.server.identity import Who, administrator, operator, viewer
from truecopy.server.models import NAME

Viewer = Annotated[Who, Depends(viewer)]
Operator = Annotated[Who, Depends(operator)]
Administrator = Annotated[Who, Depends(administrator)]
NameInPath = Annotated[str, Path(pattern=NAME, description="A name.")]
NumberInPath = Annotated[int, Path(ge=1, le=2**31 - 1, description="A number.")]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=1000)]


def _control(request: Request) -> Control:
    control: Control = request.app.state.control
    return control


Plane = Annotated[Control, Depends(_control)]

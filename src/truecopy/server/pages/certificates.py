"""Certificates, to be read and printed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response

from truecopy.server import models
from truecopy.server.pages.rendering import show
from truecopy.server.routing import Plane, Viewer
from truecopy.server.tasks import CertificateId
from truecopy.verify.page import count

router = APIRouter(prefix="/certificates")
_MOST = 200


@router.get("")
def certificates_page(
    request: Request,
    who: Viewer,
    plane: Plane,
    task: Annotated[str | None, Query(pattern=models.NAME)] = None,
) -> Response:
    """The newest first; of one task, or of all."""
    found = [models.certificate_of(one) for one in plane.runs.certificates(task, _MOST)]
    return show(request, who, "certificates", certificates=found, task=task)


@router.get("/{certificate}")
def certificate_page(
    certificate: CertificateId, request: Request, who: Viewer, plane: Plane
) -> Response:
    """One certificate; it prints without what surrounds it on the screen."""
    found = plane.runs.certificate(certificate)
    if found is None:
        raise HTTPException(404, "there is no such certificate")
    return show(request, who, "certificate", certificate=found[0], summary=_summary(found[0]))


def _summary(certificate: dict[str, Any]) -> str:
    """What was compared, and what was found, in a line."""
    tables = certificate.get("tables") or ()
    kinds = ("missing", "extra", "differing", "unsettled")
    found = [(sum(one.get(kind) or 0 for one in tables), kind) for kind in kinds]
    rows = sum(one.get("rows_compared") or 0 for one in tables)
    said = ", ".join(f"{number:,} {kind}" for number, kind in found if number)
    return (
        f"{count(rows, 'row')} of {count(len(tables), 'table')} compared: {said or 'none differs'}."
    )

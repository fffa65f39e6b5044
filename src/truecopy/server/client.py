"""The API from the other side: what commands ask a server."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from truecopy.model.errors import CannotFinish, UsageError

TOKEN = "TRUECOPY_TOKEN"
"""The variable of the environment that holds the token."""
_SECONDS = 120.0


class Client:
    """Asks one server.

    Args:
        url: `https://host:8080`.
        token: None: the one of the environment, if there is one.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError("the server's address begins with http:// or https://")
        self._url = url.rstrip("/")
        self._token = token if token is not None else os.environ.get(TOKEN, "")

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def post(self, path: str, document: object = None) -> Any:
        return self.ask("POST", path, document)

    def delete(self, path: str) -> Any:
        return self.ask("DELETE", path)

    def ask(self, method: str, path: str, document: object = None) -> Any:
        """The answer's document; what the server refuses becomes an error of ours."""
        headers = {"Accept": "application/json", "User-Agent": "truecopy"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None
        if document is not None:
            body, headers["Content-Type"] = json.dumps(document).encode(), "application/json"
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error.code, error.read()) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            said = getattr(reason, "strerror", None) or type(reason).__name__
            raise CannotFinish(f"the server at {self._url} cannot be reached: {said}") from None
        return json.loads(text) if text else None


def _refused(code: int, body: bytes) -> UsageError | CannotFinish:
    try:
        said = json.loads(body)
        lines = "; ".join([said["error"], *said.get("problems", ())])
    except (ValueError, KeyError, TypeError):
        lines = f"it answered {code}"
    kind = CannotFinish if code >= 500 or code in (409, 429) else UsageError
    if code == 401:
        lines += f" (the variable {TOKEN} of the environment holds it)"
    return kind(f"the server refused: {lines}")

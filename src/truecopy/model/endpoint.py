"""Endpoints: one database, named by a URL whose secrets come from the environment or a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from truecopy.model.errors import UsageError
from truecopy.model.secret import fill_variables

_SECRET_OPTION = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)


@dataclass(frozen=True)
class Endpoint:
    """A parsed database URL. The password never shows in `str` or `repr`."""

    scheme: str
    host: str = ""
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    path: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def database(self) -> str:
        """The database of a server's URL."""
        return self.path.lstrip("/")

    def option(self, name: str, default: str = "") -> str:
        """A query parameter of the URL."""
        return dict(self.options).get(name, default)

    def __str__(self) -> str:
        login = ""
        if self.user or self.password:
            login = quote(self.user, safe="") + (":***" if self.password else "") + "@"
        port = f":{self.port}" if self.port else ""
        shown = [f"{k}={'***' if _SECRET_OPTION.search(k) else v}" for k, v in self.options]
        query = "?" + "&".join(shown) if shown else ""
        return f"{self.scheme}://{login}{self.host}{port}{self.path}{query}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every text that must not be printed."""
        return tuple(
            s
            for s in (self.password, *(v for k, v in self.options if _SECRET_OPTION.search(k)))
            if s
        )

    @property
    def identity(self) -> str:
        """What names the same database in every run: the URL without login and options."""
        return f"{self.scheme}://{self.host}:{self.port or ''}{self.path}"


def parse_endpoint(url: str, environment: Mapping[str, str] | None = None) -> Endpoint:
    """Reads a URL; `${NAME}` is taken from the environment, `password_file=` from a file.

    Variables are put in after the URL was split, so a password may hold any character.
    """
    # urlsplit would see `${A}` as it is; only the scheme decides how the rest is read.
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise UsageError(
            f"not a database URL: {mask_url(url)}; write for example mysql://user@host:3306/shop"
        )
    malformed = UsageError(f"not a database URL: {mask_url(url)}; check the host and the port")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise malformed from None

    if parts.netloc and "@" in url and "@" not in parts.netloc:
        raise UsageError(
            f"not a database URL: {mask_url(url)}; a password with / ? or # must be percent-encoded,"
            " or come from the environment as ${NAME}"
        )

    def fill(text: str) -> str:
        return fill_variables(unquote(text), environment, "a URL")

    try:
        # urlsplit makes a host lower case, and wants digits for a port.
        if "$" in parts.netloc.rpartition("@")[2]:
            raw_host, raw_port = _raw_place(parts.netloc)
            host, port = fill(raw_host), int(fill(raw_port)) if raw_port else None
        else:
            host, port = fill(host), parts.port
    except ValueError:
        raise malformed from None
    options = tuple(
        (name, fill(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    password = fill(parts.password or "")
    if file := dict(options).get("password_file"):
        try:
            password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise UsageError(f"cannot read password_file {file}: {error.strerror}") from None
        options = tuple(option for option in options if option[0] != "password_file")
    return Endpoint(
        scheme=scheme,
        host=host,
        port=port,
        user=fill(parts.username or ""),
        password=password,
        path=fill(parts.path),
        options=options,
    )


def mask_url(url: str) -> str:
    """A URL as it may be printed, also where it could not be parsed: all between user and `@` is hidden."""
    head, at, tail = url.rpartition("@")
    shown = re.match(r"(?:[A-Za-z][\w+.-]*://)?[^:]*", head)
    return f"{shown[0] if shown else ''}:***@{tail}" if at and ":" in head else url


def mask_secrets(text: str, endpoints: tuple[Endpoint, ...]) -> str:
    """The text without any password of these endpoints."""
    for endpoint in endpoints:
        for secret in endpoint.secrets:
            if len(secret) > 2:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
    return re.sub(r"(://[^:/@\s]*):[^\s]*@", r"\1:***@", text)


def _raw_place(netloc: str) -> tuple[str, str]:
    place = netloc.rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    return (host, port) if colon else (place, "")

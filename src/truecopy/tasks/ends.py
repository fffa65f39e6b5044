"""The two ends of a task: an endpoint, or a keyspace of shards."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self
from urllib.parse import quote

from pydantic import Discriminator, Field, Tag, model_serializer, model_validator

from truecopy.model.endpoint import Endpoint, mask_url, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import Keyspace, parse_keyspace, parse_shards
from truecopy.tasks.values import SecretText, Section


class Address(Section):
    """A database: its URL, or the URL and the password apart."""

    short: ClassVar = {"type": "string", "pattern": "://", "description": "A database URL."}

    url: SecretText
    """`mariadb://user:${PASSWORD}@host:3306/shop`. Variables are put in when a connection is made."""
    password: SecretText | None = None
    """The password, where it is not in the URL: `${NAME}` or `file:/path`."""

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _looks_like_a_url(self) -> Address:
        if "://" not in self.url.reference:
            raise ValueError(
                "not a database URL; write for example mysql://user:${PASSWORD}@host:3306/shop"
            )
        return self

    @model_serializer
    def _masked(self) -> str:
        return str(self)

    @property
    def text(self) -> str:
        """The URL as streams and tasks pass it on: with the password's place, not with the password."""
        url, password = self.url.reference, self.password
        if password is None:
            return url
        if password.reference.startswith("file:"):
            path = quote(password.reference.removeprefix("file:"), safe="/${}")
            return f"{url}{'&' if '?' in url else '?'}password_file={path}"
        scheme, _, rest = url.partition("://")
        user, at, place = rest.rpartition("@")
        secret = quote(password.reference, safe="${}")
        return f"{scheme}://{user.partition(':')[0]}:{secret}@{place if at else rest}"

    def endpoint(self) -> Endpoint:
        """The endpoint, with its secrets looked up."""
        return parse_endpoint(self.text)

    def __str__(self) -> str:
        # Options of a URL may be secrets, and which of them are is the engine's to know.
        return mask_url(self.url.reference).partition("?")[0]

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


class ShardServers(Section):
    """The servers of one key range."""

    servers: list[SecretText]
    """URLs of servers that hold the same rows; a healthy, current one is picked."""
    serving: bool = True
    """Whether the shard takes writes now; others wait for a reshard, or are left from one."""


class TableSharding(Section):
    """How a row of a table finds its shard."""

    column: str
    function: str
    """`hash`, `numeric`, `binary` or `text`."""


class Shards(Section):
    """A keyspace: a database cut into shards by key range."""

    keyspace: str
    """Its name."""
    shards: dict[str, ShardServers]
    """By key range, quoted: `"-80"`, `"80-"`."""
    sharding: dict[str, TableSharding] = Field(default_factory=dict)
    """By table: the column and the function that make the keyspace id of a row."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        try:
            self.whole()
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    def whole(self) -> Keyspace:
        """The keyspace, with its servers' URLs as they are written."""
        return parse_keyspace(self._plain())

    def _plain(self) -> dict[str, object]:
        shards = {
            name: {"servers": [s.reference for s in one.servers], "serving": one.serving}
            for name, one in self.shards.items()
        }
        sharding = {table: one.model_dump() for table, one in self.sharding.items()}
        return {"keyspace": self.keyspace, "shards": shards, "sharding": sharding}

    def __str__(self) -> str:
        return f"keyspace {self.keyspace}"


class TargetShards(Shards):
    """Shards of a keyspace that rows are written to: all that are named, whether they serve or not."""

    def whole(self) -> Keyspace:
        """The shards, which need not be all of the keyspace."""
        found = parse_shards(self._plain())
        for place, one in enumerate(found.shards):
            for other in found.shards[place + 1 :]:
                if one.key_range.overlaps(other.key_range):
                    raise UsageError(
                        f"{one.name} and {other.name} overlap, so that rows would go to both; write a task for each"
                    )
        return found


def _which(data: object) -> str:
    if isinstance(data, Shards) or (isinstance(data, dict) and "keyspace" in data):
        return "a keyspace"
    return "an address"


Source = Annotated[
    Annotated[Address, Tag("an address")] | Annotated[Shards, Tag("a keyspace")],
    Discriminator(_which),
]
"""A database's URL, or a keyspace."""

Target = Annotated[
    Annotated[Address, Tag("an address")] | Annotated[TargetShards, Tag("a keyspace")],
    Discriminator(_which),
]
"""A database's URL, or shards of a keyspace."""

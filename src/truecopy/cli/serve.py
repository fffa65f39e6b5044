"""`truecopy serve`: one place to see and steer every task; and the tokens of those who may."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Annotated

import typer

from truecopy.model.errors import CannotFinish, UsageError

serve_app = typer.Typer(
    name="serve",
    help="Serve the API by which tasks are made, started, watched and cut over.",
    invoke_without_command=True,
)
token_commands = typer.Typer(
    name="token", help="Tokens of those who may ask the server.", no_args_is_help=True
)
serve_app.add_typer(token_commands)

_Metastore = Annotated[
    str | None,
    typer.Option(
        help="Where the state of tasks is kept: any SQLAlchemy URL, with ${NAME} or file:/path for secrets."
        " Default: SQLite in the state folder."
    ),
]


@serve_app.callback()
def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option(help="Where to listen; anything but the loopback needs tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port.")] = 8080,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="A name by which the server is called, for instance behind a proxy; repeatable."
        ),
    ] = None,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Need tokens on the loopback, too.")
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate (PEM), for HTTPS.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate's key (PEM).")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs tasks that do not say it: local[*], spark://…, yarn, k8s://…"
        ),
    ] = None,
    metastore: _Metastore = None,
    rate: Annotated[float, typer.Option(min=1, help="Requests per second of one address.")] = 50.0,
    keep_events: Annotated[
        float,
        typer.Option(min=0, metavar="DAYS", help="For how long events are kept; 0: for ever."),
    ] = 90,
    keep_audit: Annotated[
        float,
        typer.Option(
            min=0, metavar="DAYS", help="For how long the audit log is kept; 0: for ever."
        ),
    ] = 365,
) -> None:
    """Serve the API by which tasks are made, started, watched and cut over.

    Tasks are processes of their own: they go on when the server ends, and
    are there when it is started again. On the loopback nobody is asked for
    a token; at any other address everybody is.

    \b
    Examples:
      truecopy serve
      truecopy serve token add ada --role operate
      truecopy serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    if metastore is not None:
        from truecopy.metastore.database import choose_metastore
        from truecopy.model.secret import Secret

        choose_metastore(Secret(metastore))
    if context.invoked_subcommand is not None:
        return
    _serve(
        host=host,
        port=port,
        names=tuple(name or ()),
        require_token=require_token,
        certificate=tls_cert,
        key=tls_key,
        rate=rate,
        burst=max(int(rate * 6), 50),
        events_days=keep_events,
        audit_days=keep_audit,
        master=master,
    )


def _serve(*, master: str | None, **given: object) -> None:
    import os

    try:
        from truecopy.server.serving import log_to, make_server
        from truecopy.server.settings import ServerSettings
    except ImportError:
        raise UsageError("the server is an extra: pip install 'truecopy[server]'") from None
    settings = ServerSettings(**given)  # type: ignore[arg-type] # named as its fields are
    if settings.needs_token:
        from truecopy.metastore.tokens import Tokens

        if not Tokens().all():
            raise UsageError(
                "nobody could use a server that needs tokens and has none: truecopy serve token add NAME --role admin"
            )
    if master is not None:
        os.environ["TRUECOPY_MASTER"] = master
    log_to()
    server = make_server(settings)
    # It ends by a signal, which then reaches this program, too.
    with suppress(KeyboardInterrupt, CannotFinish):
        server.run()
    if not server.started:
        raise CannotFinish(f"cannot listen at {settings.host}:{settings.port}: see the log above")


@token_commands.callback()
def _tokens() -> None:
    """Tokens of those who may ask the server."""


@token_commands.command()
def add(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    role: Annotated[
        str, typer.Option(help="view, operate (also start, stop, cut over) or admin.")
    ] = "view",
    days: Annotated[
        float, typer.Option(min=0, help="After how many days it expires; 0: never.")
    ] = 90,
) -> int:
    """Make a token and print it; it is printed this once.

    Only its hash is kept. A viewer sees everything but the audit log; an
    operator starts, stops, repairs and cuts over; an admin makes and deletes
    tasks, whose files may name commands of the server's machine.

    \b
    Examples:
      truecopy serve token add ada --role operate --days 30
    """
    import re

    from truecopy.metastore.tokens import Tokens
    from truecopy.tasks.accepting import NAME

    if not re.fullmatch(NAME, name):
        raise UsageError("a token's name has letters, digits, points, - and _, and at most 64")
    typer.echo(Tokens().add(name, role, days * 86_400 if days else None))
    return 0


@token_commands.command("list")
def list_tokens(
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List tokens: names, roles, and until when they hold.

    The tokens themselves are not known to anybody but those who have them;
    one that was lost is removed, and another one is made.

    \b
    Examples:
      truecopy serve token list
    """
    from truecopy.metastore.tokens import Tokens
    from truecopy.transfer.progress import moment

    found = [
        {"name": one.name, "role": one.role, "expires_at": moment(one.expires_at)}
        for one in Tokens().all()
    ]
    if json_:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        for one in found:
            typer.echo(f"{one['name']}  {one['role']}  {one['expires_at'] or 'never expires'}")
    return 0


@token_commands.command()
def remove(name: Annotated[str, typer.Argument(help="Whose token.")]) -> int:
    """End a token, and the sessions of browsers that began with it.

    It holds from the next request on, at every server of the metastore; what
    was started with it goes on.

    \b
    Examples:
      truecopy serve token remove ada
    """
    from truecopy.metastore.tokens import Tokens

    if not Tokens().remove(name):
        raise UsageError(f"there is no token {name}")
    return 0

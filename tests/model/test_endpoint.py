"""Endpoints: whatever a password is made of, it is read right and never shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from truecopy.model.endpoint import mask_secrets, mask_url, parse_endpoint
from truecopy.model.errors import UsageError

SECRET = "Hunter2Hunter2"
passwords = st.builds(
    lambda before, after: f"{before}{SECRET}{after}",
    st.text(max_size=6),
    st.text(max_size=6),
).filter(lambda password: password.isprintable())


@given(passwords, st.text("abcé@:/", max_size=5))
@example(f"@:/?#%&=+ {SECRET}", "u@x")
@example(f"${{HOME}}{SECRET}", "")
@example(f"{SECRET}%41", "")
def test_a_quoted_password_is_read_and_never_shown(password: str, user: str) -> None:
    url = f"mysql://{quote(user, safe='')}:{quote(password, safe='')}@db.example:3307/shop"
    if "${" in password:
        return
    endpoint = parse_endpoint(url)
    assert (endpoint.password, endpoint.user) == (password, user)
    assert (endpoint.host, endpoint.port, endpoint.database) == ("db.example", 3307, "shop")
    for shown in (
        str(endpoint),
        repr(endpoint),
        endpoint.identity,
        mask_url(url),
        f"{endpoint!r:s}",
    ):
        assert SECRET not in shown
    message = f"login with {password} or {quote(password, safe='')} to {url} failed"
    assert SECRET not in mask_secrets(message, (endpoint,))


@given(passwords)
@example(f"a b${SECRET}")
def test_a_password_of_the_environment_may_hold_any_character(password: str) -> None:
    endpoint = parse_endpoint("postgresql://u:${PW}@h/d", {"PW": password})
    assert endpoint.password == password
    assert SECRET not in str(endpoint) + repr(endpoint)


def test_host_and_port_of_the_environment() -> None:
    environment = {"HOST": "db1", "PORT": "3307", "WORD": "x"}
    for url, place in (
        ("mysql://u@${HOST}:${PORT}/shop", ("db1", 3307)),
        ("mysql://u@${HOST}/shop", ("db1", None)),
        ("mysql://u@db2:${PORT}/shop", ("db2", 3307)),
        ("mysql://u@DB2:3306/shop", ("db2", 3306)),
    ):
        found = parse_endpoint(url, environment)
        assert (found.host, found.port) == place
    with pytest.raises(UsageError, match="check the host and the port"):
        parse_endpoint("mysql://u@db2:${WORD}/shop", environment)


@pytest.mark.parametrize(
    "name",
    ["password", "passwd", "sslpassword", "token", "secret_access_key", "Password", "PWD", "pwd"],
)
def test_secret_options_are_masked(name: str) -> None:
    endpoint = parse_endpoint(f"postgresql://u@h/d?{name}={SECRET}&connect_timeout=3")
    assert SECRET not in str(endpoint) + repr(endpoint)
    assert SECRET not in mask_secrets(f"cannot use {SECRET}", (endpoint,))
    assert endpoint.option(name) == SECRET
    assert "connect_timeout=3" in str(endpoint)


@pytest.mark.parametrize(
    "url",
    [
        f"u:{SECRET}@h/d",
        f"mysql:u:{SECRET}@h/d",
        f"mysql:/u:{SECRET}@h/d",
        f"mysql//u:{SECRET}@h/d",
        f"MySQL://u:{SECRET}@h/d",
        f"my_sql://u:{SECRET}@h/d",
        f"mysql://u:{SECRET}@h:port/d",
        f"mysql://u:a/{SECRET}@h/d",
        f"mysql://u:a@{SECRET}@h:x/d",
        f"mysql://u:12?{SECRET}@h/d",
        f"mysql://u:12#{SECRET}@h/d",
        f"mysql://u:12/{SECRET}@h/d",
        f"mysql://u:[{SECRET}@h/d",
        f"mysql://:{SECRET}@h:99999999/d",
        f"${{URL}}:{SECRET}@h/d",
    ],
)
def test_a_url_that_cannot_be_read_shows_no_password_either(url: str) -> None:
    try:
        endpoint = parse_endpoint(url, {})
    except UsageError as error:
        shown = f"{error} {error!r} {error.__cause__!r}"
        if not error.__suppress_context__:
            shown += repr(error.__context__)
    else:
        shown = f"{endpoint} {endpoint!r} {endpoint.identity}"
    assert SECRET not in shown

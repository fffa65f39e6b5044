"""The keyspace file, as people write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from truecopy.model.errors import UsageError
from truecopy.stream.keyspace_file import load_keyspace

TEXT = """
source:
  keyspace: shop
  shards:
    "-80": {servers: ["mariadb://u:${PW}@a/shop", "mariadb://b/shop"], serving: true}
    80-: {servers: ["mariadb://c/shop"], serving: true}
  sharding: {orders: {column: customer_id, function: hash}}
"""


def test_a_keyspace_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(TEXT)
    keyspace = load_keyspace(file)
    assert [shard.name for shard in keyspace.shards] == ["-80", "80-"]
    assert keyspace.shards[0].servers == ("mariadb://u:${PW}@a/shop", "mariadb://b/shop")
    assert load_keyspace(str(file)) == keyspace


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace('"-80"', "-80"), "shop.yaml: the shard -80 must be quoted"),
        (TEXT.replace("80-:", '"-80":'), "-80 comes twice in line 6"),
        (TEXT.replace("sharding:", "shading:"), "unknown key shading; did you mean sharding"),
        (TEXT.replace("a/shop", 'a"s3cret/shop'), "in line 5"),
        ("", "shop.yaml: the keyspace file must be a mapping"),
        ("\x00", "not YAML"),
        ("? [a]\n: b", "unhashable key in line 1"),
    ],
)
def test_mistakes_name_the_file_and_no_secret(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        load_keyspace(file)
    assert "shop.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.yaml: No such file"):
        load_keyspace(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match="not YAML in UTF-8"):
        load_keyspace(tmp_path / "bytes.yaml")

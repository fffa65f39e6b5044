"""Queries whose answers say how fresh they are.

with truecopy.client.connect("shop-keyspace.yaml") as client:
    answer = client.query("SELECT … WHERE id = %s", (17,), of=("orders", 17), include_token=True)
    answer.rows, answer.token
"""

from truecopy.client.answer import Answer
from truecopy.client.client import Client, connect

__all__ = ["Answer", "Client", "connect"]

"""What one database can do: one module per engine, found by the scheme of a URL."""

from truecopy.engines.registry import connect

__all__ = ["connect"]

"""Caches that follow a database: invalidation on the change stream, and reads through the cache."""

"""Proof about query results: source, filter, rewrite, run, compare, determinism, resolve, report."""

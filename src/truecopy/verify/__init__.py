"""Proof about tables: are they equal, which rows are not, and what would make them equal."""

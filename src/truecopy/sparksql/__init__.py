"""Canonical text in Spark's SQL: what engines that Spark reads and mappings of rows share."""

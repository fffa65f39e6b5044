"""What data is: types, tables, keys, canonical text, fingerprints. Pure: no I/O, no Spark."""

"""What a database can do for queries of a user: run, time, cancel, describe and checksum them."""

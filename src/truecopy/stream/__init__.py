"""Changes out of a database, as a Spark streaming source; shards, key ranges, hops."""

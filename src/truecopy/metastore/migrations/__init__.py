"""The history of the metastore's tables, a step a file; the last one is `truecopy.metastore.migrating.HEAD`."""

"""The raw event log of a database, a table as of any moment of it, and copies that only move forward."""

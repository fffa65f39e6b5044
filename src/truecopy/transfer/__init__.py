"""Rows into a target: snapshot, replicate, deliver, cut over."""

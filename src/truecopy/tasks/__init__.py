"""Tasks: the file that describes one, and its life."""

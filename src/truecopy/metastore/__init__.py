"""What must survive: the state of unfinished work and its results."""

"""The target takes over: writers are held off, the rest is drained and proven, and writers are let in there."""

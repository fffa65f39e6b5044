"""Continuous validation: every replicated change, looked at on the target."""

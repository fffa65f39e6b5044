"""Proof that what a transfer wrote is what the source holds: the verifiers of a task."""

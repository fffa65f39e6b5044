"""Benchmarks: each program prints a line per figure."""

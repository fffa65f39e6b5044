"""Figures for Prometheus: each below its name, its kind and its meaning, whatever labels hold."""

from __future__ import annotations

from truecopy.model.exposition import Metric, exposition

_METRICS = (
    Metric("things", "gauge", "Things."),
    Metric("size", "gauge", "Of a thing."),
    Metric("unknown", "counter", "Of nothing."),
)


def test_samples_are_below_their_metrics_and_labels_are_escaped() -> None:
    samples = [
        ("size", {"of": 'a "b"\n\\c'}, 1.5),
        ("things", {}, 2),
        ("unknown", {}, None),
        ("size", {"of": "d", "kind": "e"}, 0),
    ]
    assert exposition("x_", _METRICS, samples).splitlines() == [
        "# HELP x_things Things.",
        "# TYPE x_things gauge",
        "x_things 2",
        "# HELP x_size Of a thing.",
        "# TYPE x_size gauge",
        r'x_size{of="a \"b\"\n\\c"} 1.5',
        'x_size{of="d",kind="e"} 0',
    ]
    assert exposition("x_", _METRICS, []) == ""

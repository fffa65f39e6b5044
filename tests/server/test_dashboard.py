"""The dashboard shows figures that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from truecopy.server.metrics import _METRICS
from truecopy.transfer.continuous.standing import _METRICS as _OF_VALIDATION


def test_every_figure_of_the_dashboard_is_served() -> None:
    text = Path("packaging/grafana-dashboard.json").read_text(encoding="utf-8")
    panels = json.loads(text)["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"truecopy_\w+", target["expr"])
    }
    served = {f"truecopy_task_{name}" for name, *_ in _METRICS}
    served |= {f"truecopy_validate_{name}" for name, *_ in _OF_VALIDATION}
    assert asked <= served

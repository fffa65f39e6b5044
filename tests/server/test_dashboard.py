"""The dashboard shows figures that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from truecopy.server.metrics import METRICS
from truecopy.transfer.continuous.standing import METRICS as OF_VALIDATION


def test_every_figure_of_the_dashboard_is_served() -> None:
    text = Path("packaging/grafana-dashboard.json").read_text(encoding="utf-8")
    panels = json.loads(text)["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"truecopy_\w+", target["expr"])
    }
    served = {f"truecopy_{one.name}" for one in METRICS}
    served |= {f"truecopy_validate_{one.name}" for one in OF_VALIDATION}
    assert asked <= served

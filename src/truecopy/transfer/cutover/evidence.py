"""The certificate of a cutover: what was compared, at which positions, with which digests, what was not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from truecopy.model.endpoint import Endpoint
from truecopy.model.fingerprint import Digest
from truecopy.stream.offset import Offset
from truecopy.transfer.cutover.proof import Proof
from truecopy.transfer.cutover.settings import NONE
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.chosen import TARGET
from truecopy.verify.certificate import issue_certificate
from truecopy.verify.options import Options
from truecopy.verify.report import EQUAL, Report, TableReport

_NOT_WHOLE = (
    "its rows were compared as they were copied, and those that changed since again; no digest of the whole was taken"
    " while writers were locked out"
)


@dataclass(frozen=True)
class Evidence:
    """What a certificate is made from.

    Attributes:
        final: The source's position after which no table of the task changed.
        onto: Where the target's log stood then.
        way: How writers were held off.
        copied: Of each table: the rows that were compared as they were copied.
    """

    task: str
    source: Endpoint
    target: Endpoint
    plans: Mapping[str, TablePlan]
    proof: Proof
    final: Offset
    onto: str | None
    way: str
    began_at: float
    seconds: float
    copied: Mapping[str, int]

    def issue(self) -> str:
        """Writes the certificate, as JSON and as a page; gives the path of the former."""
        position = "; ".join(mark.position for mark in self.final.marks.values())
        report = Report(
            self.source,
            self.target,
            Options(),
            EQUAL,
            tuple(self._table(plan) for plan in self.plans.values()),
            self.seconds,
            self.began_at,
            {
                "source_before": position,
                "source_after": position,
                "target_before": self.onto,
                "target_after": self.onto,
            },
        )
        way = "by hand" if self.way == NONE else self.way
        more = {
            "not_seen": self._not_seen(),
            "cutover": {
                "Task": self.task,
                "Writers": f"held off ({way}) from before the last position until the end of the comparison",
                "Last position": position,
                "After it": "the source's log shows no change of these tables",
                "Verifiers": [str(outcome) for outcome in self.proof.outcomes],
            },
        }
        return issue_certificate(report, more).certificate

    def _table(self, plan: TablePlan) -> TableReport:
        digests = self.proof.digests.get(plan.source_name)
        source, target = plan.source, plan.target
        return TableReport(
            plan.source_name,
            str(target.tables[0]),
            EQUAL,
            reason=None if digests else _NOT_WHOLE,
            rows_compared=digests[0].count if digests else self.copied.get(plan.source_name, 0),
            rows_source=digests[0].count if digests else 0,
            rows_target=digests[1].count if digests else 0,
            digests=digests or (Digest(), Digest()),
            columns=tuple(column.name for column in source.columns),
            types=source.types,
            key=tuple(column.name for column in source.key),
            ignored=_left_out(plan),
        )

    def _not_seen(self) -> list[str]:
        lines = [
            f"{name}: columns left out: {', '.join(_left_out(plan))}"
            for name, plan in self.plans.items()
            if _left_out(plan)
        ]
        if len(self.proof.digests) < len(self.plans):
            watched = any(one.verifier == TARGET and one.passed for one in self.proof.outcomes)
            if not watched:
                lines.append(
                    "what somebody else wrote to rows of the target that nobody changed on the source, after they were"
                    " compared (verify.target sees that)"
                )
        lines.append(
            "writes that were kept out of the source's log (SET sql_log_bin = 0, unlogged tables)"
        )
        lines.append("views, triggers, routines and grants")
        return lines


def _left_out(plan: TablePlan) -> tuple[str, ...]:
    if plan.is_mapped:
        return ()  # its columns are as the task makes them
    carried = {column.name for column in plan.source.columns}
    return tuple(c.name for c in plan.mapping.source_columns if c.name not in carried)

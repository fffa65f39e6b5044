"""One schedule: a source that is written to, a transfer, whoever verifies it, and whatever goes wrong.

What may happen between any two steps, and what must come of it:

- *A commit is in the log and cannot be read yet*: a copy that begins then must get it from the stream; a comparison
  that is made then must not count for it.
- *A driver dies*, or is only thought to be dead and goes on beside its successor: nothing that it does counts any more.
- *An attempt is given up* and goes on later, after its replacement, after the next driver, after the cutover: its rows
  are rolled back.
- *A batch is cut otherwise* after a restart: what a part holds already is skipped, change by change.
- *The shard is split* while it is copied or replicated, or dies before it was read to its end.
- *Somebody else writes into the target*, or the writer itself is wrong: a verifier says so, before writers are let in.
- *The driver dies during the cutover*: the next one finishes it, or lets the writers in again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.transfer.simulation.attempts import ELSEWHERE, SKIPPED, VALUE, Attempt
from tests.transfer.simulation.driver import CUTOVER, DONE, REPLICATE, Driver
from tests.transfer.simulation.lines import Lines
from tests.transfer.simulation.rules import Broken, Case
from tests.transfer.simulation.source import KEYS, WHOLE, Change, Source
from tests.transfer.simulation.store import Seen, Store
from tests.transfer.simulation.target import MARK, Target
from truecopy.transfer.ledger import Overtaken

_MOODS = 0.2, 1, 1, 3

EQUAL, CAUGHT = "equal", "caught"
UNDETECTED, FALSE_ALARM, STALE, WRITTEN_LATER, STUCK = (
    "undetected difference",
    "false alarm",
    "an older row came after a newer one",
    "written to after the cutover",
    "stuck",
)


class Caught(Exception):
    """A verifier found something: the run ends."""


@dataclass(frozen=True)
class Outcome:
    """How a schedule ended; `lost` and `doubled` are rows without a key."""

    kind: str
    reason: str = ""
    lost: int = 0
    doubled: int = 0

    @property
    def is_flaw(self) -> bool:
        return self.kind not in (EQUAL, CAUGHT)


def run_schedule(seed: int, case: Case, target: Target) -> Outcome:
    """Runs one schedule, which the seed decides."""
    target.clear()
    return Schedule(Random(seed), case, target).run()


class Schedule:
    def __init__(self, rng: Random, case: Case, target: Target) -> None:
        self.rng = rng
        self.case = case
        self.source = Source(rng, has_names=case.has_names)
        self.target = target
        self.lines = Lines(target, case)
        # What survives a driver
        self.store = Store()
        self.watched = 0
        self.pass_at = 0 if case.verify == "iterative" else KEYS
        # What does not
        self.driver: Driver | None = None
        self.late_drivers: list[Driver] = []
        self.attempts: list[Attempt] = []
        self.comparisons: list[Iterator[None]] = []
        self.cutover: Iterator[None] | None = None
        # What only the test knows
        self.fault: str | None = None
        self.was_disturbed = False
        self.promised: list[Sequence[Change]] = []
        self.replicates_since: int | None = None
        self.is_done = False

    def run(self) -> Outcome:
        actions = self._actions()
        # Schedules differ in what is frequent in them: some faults show only where others are rare.
        names = list(actions)
        weights = [weight * self.rng.choice(_MOODS) for weight, _ in actions.values()]
        try:
            for name in self.rng.choices(names, weights, k=self.rng.randint(50, 400)):
                actions[name][1]()
                if self.is_done:
                    break
            self._finish()
        except Caught as caught:
            excused = self.was_disturbed or self.promised
            return Outcome(CAUGHT if excused else FALSE_ALARM, str(caught))
        if not self.is_done:
            return Outcome(STUCK, f"in {self.driver and self.driver.phase}")
        last = len(self.target.log())
        self._let_late_ones_go()
        return self._compare(last)

    def _actions(self) -> dict[str, tuple[float, Callable[[], None]]]:
        actions: dict[str, tuple[float, Callable[[], None]]] = {
            "source write": (6, self.source.write),
            "commit seen": (3, self.source.show),
            "driver": (12, self._drive),
            "attempt": (12, self._attempt),
            "late attempt": (0.7, self._attempt_late),
            "attempt given up": (1, self._give_up),
            "attempt dies": (0.5, self._kill_attempt),
            "crash": (0.9, self._crash),
            "restart": (4, self._restart),
            "late driver": (4, self._drive_late),
            "stream begins again": (0.5, self._begin_again),
            "verify": (2, self._verify_some),
            "reverify": (4, self._reverify),
            "watch": (1, self._watch_some),
            "cutover": (0.5, self._cut_over),
        }
        if self.case.reshards:
            actions["reshard"] = 2, self.source.reshard
            actions["late write"] = 3, self.source.write_late
            actions["shard dies"] = 0.3, self.source.kill_old_shard
            actions["shard and driver die"] = 0.5, self._lose_site
        if self.case.has_faults:
            if self.case.verify in ("full", "checksum"):
                actions["rogue write"] = 0.5, self._write_rogue
            actions["wrong write"] = 0.5, self._make_fault
        return actions

    # Drivers and attempts

    def _restart(self) -> None:
        if self.driver is None:
            if self.lines.find() is not None and self.case.verify in ("inline", "full"):
                self.pass_at = 0  # each resume begins a pass over everything
            self.driver = Driver(self)
            if self.driver.phase == CUTOVER and self.rng.random() < 0.5:
                self.source.is_locked = False
                self.driver.enter(REPLICATE)

    def _drive(self) -> None:
        if self.driver is not None:
            try:
                self.driver.go_on()
            except Overtaken:
                self._lose_driver()

    def _drive_late(self) -> None:
        if self.late_drivers:
            late = self.rng.choice(self.late_drivers)
            try:
                late.go_on()
            except (Overtaken, Caught):  # nobody listens to it any more
                self.late_drivers.remove(late)

    def _begin_again(self) -> None:
        """The stream of a driver ends and a new one begins, as between catching up and going on."""
        if self.driver is not None and not self.driver.works:
            self.driver.begin_stream()

    def _attempt(self) -> None:
        if awake := [attempt for attempt in self._alive() if not attempt.is_late]:
            self.rng.choice(awake).go_on()

    def _attempt_late(self) -> None:
        if late := [attempt for attempt in self._alive() if attempt.is_late]:
            self.rng.choice(late).go_on()

    def _alive(self) -> list[Attempt]:
        self.attempts = [attempt for attempt in self.attempts if not attempt.is_over]
        return self.attempts

    def _give_up(self) -> None:
        """It does not answer: another attempt is made, and it wakes up later."""
        if waiting := [a for a in self._alive() if not a.is_late]:
            late = self.rng.choice(waiting)
            late.is_late = True
            self.attempts.append(Attempt(late.work))

    def _kill_attempt(self) -> None:
        if alive := self._alive():
            alive.remove(self.rng.choice(alive))

    def _crash(self) -> None:
        if self.driver is not None:
            if self.rng.random() < 0.4:
                self.driver.is_late = True
                self.late_drivers.append(self.driver)
            self._lose_driver()
            self.attempts = [a for a in self._alive() if self.rng.random() < 0.6]
            for attempt in self.attempts:
                attempt.is_late = True

    def _lose_driver(self) -> None:
        self.driver, self.cutover, self.comparisons = None, None, []

    def _lose_site(self) -> None:
        self._crash()
        self.source.reshard()
        self.source.kill_old_shard()

    # What goes wrong

    def _write_rogue(self) -> None:
        self.was_disturbed = True
        key = self.rng.randrange(KEYS)
        if self.rng.random() < 0.2:
            self.target.append(-1, None)
        elif self.rng.random() < 0.5:
            self.target.insert(key, -1, None, over=True)
        else:
            self.target.delete(key, None)

    def _make_fault(self) -> None:
        elsewhere = self.case.verify in ("full", "checksum")
        self.fault = self.rng.choice((VALUE, SKIPPED, ELSEWHERE) if elsewhere else (VALUE, SKIPPED))

    def take_fault(self) -> str | None:
        fault, self.fault = self.fault, None
        self.was_disturbed = self.was_disturbed or fault is not None
        return fault

    def fail(self, reason: str) -> None:
        raise Caught(reason)

    def entered(self, phase: str) -> None:
        if phase == REPLICATE and self.replicates_since is None:
            self.replicates_since = len(self.target.log())

    # Verifiers

    def _verify_some(self) -> None:
        """A pass over all rows; what differs is compared again later."""
        if self.driver is None or self.driver.phase not in (REPLICATE, CUTOVER):
            return
        for key in range(self.pass_at, min(self.pass_at + 3, KEYS)):
            if self.source.row(key) != self.target.row(key):
                self.store.add(key, None)
        self.pass_at = min(self.pass_at + 3, KEYS)

    def _reverify(self) -> None:
        if self.comparisons and self.rng.random() < 0.5:
            comparison = self.rng.choice(self.comparisons)
            if next(comparison, self) is self:
                self.comparisons.remove(comparison)
        elif self.driver is not None and (keys := self.store.keys()):
            self.comparisons.append(self._compare_key(self.rng.choice(keys), self.driver))
            next(self.comparisons[-1])

    def _compare_key(self, key: int, driver: Driver) -> Iterator[None]:
        """Mirrors `Reverification.work`: the source's row, then the target's; equal, on its way, or wrong.

        There the look waits until the source shows all that was counted; here it may count for a part of it.
        """
        taken = self.store.changes[key].copy()
        compared = Counter({seen: n for seen, n in taken.items() if self._is_seen(seen, driver)})
        wanted = self.source.row(key)
        yield
        held = self.target.row(key)
        if held != wanted and compared == taken and driver.phase == REPLICATE:
            ends = driver.log_ends()
            while not driver.has_reached(ends):
                yield
            held = self.target.row(key)
            if held != wanted and self.store.changes[key] == taken:
                raise Caught(f"row {key} is wrong for sure")
        if held == wanted:
            forgets = self.case.broken is Broken.SET_FOR_COUNT
            self.store.discharge(key, self.store.changes[key] if forgets else compared)

    def _is_seen(self, seen: Seen, driver: Driver) -> bool:
        """Only what was written to the target, and can be read on the source, is compared by comparing the rows."""
        if seen is None or self.case.broken is Broken.UNSEEN_REVERIFIED:
            return True
        shard, position = seen
        return driver.has_applied(*seen) and self.source.shards[shard].visible() >= position

    def _watch_some(self) -> None:
        self._watch(self.rng.randint(1, 6))

    def _watch(self, most: int = -1) -> bool:
        """The target verifier reads on; whether there was anything."""
        if self.case.verify != "full":
            return False
        logged = self.target.log(self.watched, most)
        for entry in logged:
            if entry.mark != MARK:
                raise Caught("a write that is not ours")
            if entry.key is not None:
                self.store.add(entry.key, None)
            self.watched = entry.number
        return bool(logged)

    # Cutover

    def _cut_over(self) -> None:
        if self.driver is None or self.driver.phase not in (REPLICATE, CUTOVER):
            return
        if self.cutover is None:
            self.cutover = self._steps_of_cutover(self.driver)
        try:
            next(self.cutover, None)
        except Overtaken:
            self._lose_driver()

    def _steps_of_cutover(self, driver: Driver) -> Iterator[None]:
        driver.enter(CUTOVER)
        yield
        self.source.lock()
        yield
        while not driver.is_drained():
            yield
        # Attempts of this very run that were given up are shut out, too, before the last look.
        line = self.lines.claim({})
        driver.epoch = line.epoch
        yield
        if self.case.broken is not Broken.LAST_WRITES_UNWATCHED:
            self._watch()
        self._verify_last()
        while self.case.broken is not Broken.LAST_WRITES_UNWATCHED and self._watch():
            self._verify_last()
            yield
        driver.enter(DONE)
        self.is_done = True

    def _verify_last(self) -> None:
        keys = set(self.store.keys()) | set(range(self.pass_at, KEYS))
        if self.case.verify == "checksum":
            keys = set(range(KEYS))
        if self.case.verify == "none" or not self.case.has_transactions:
            return
        for key in keys:
            if self.source.row(key) != self.target.row(key):
                raise Caught(f"row {key} differs")
        if not self.case.reshards and self.source.events() != self.target.events():
            raise Caught("rows without a key differ")

    # The end

    def _finish(self) -> None:
        """Nothing new happens any more: whatever was begun comes to its end."""
        steps = (self._restart, self._drive, self._attempt, self._attempt, self._cut_over)
        others = (
            self._drive_late,
            self._attempt_late,
            self._reverify,
            self._watch_some,
            self._verify_some,
            self.source.show,
        )
        for _ in range(3000):
            if self.is_done:
                return
            self.rng.choice(steps if self.rng.random() < 0.8 else others)()

    def _let_late_ones_go(self) -> None:
        for _ in range(100):
            self._drive_late()
            self._attempt()
            self._attempt_late()
            if not self._alive() and not self.late_drivers:
                return

    def _compare(self, last: int) -> Outcome:
        wanted, held = Counter(self.source.events()), Counter(self.target.events())
        lost, doubled = wanted - held, held - wanted
        differing = {k for k in range(KEYS) if self.source.row(k) != self.target.row(k)}
        forgiven = {change for changes in self.promised for change in changes}
        flaws = []
        if self.case.has_transactions and (keys := differing - {change.key for change in forgiven}):
            flaws.append(f"rows {keys} differ")
        if values := lost.keys() - {change.value for change in forgiven}:
            flaws.append(f"rows {values} without a key are lost")
        if doubled and self.case.has_transactions and not self.case.reshards:
            flaws.append(f"rows {set(doubled)} without a key are double")
        if flaws:
            kind = UNDETECTED
        # Without transactions nothing can keep an attempt from appending once more.
        elif self.case.has_transactions and len(self.target.log()) > last:
            kind = WRITTEN_LATER
        else:
            kind = STALE if self._goes_back() else EQUAL
        return Outcome(kind, "; ".join(flaws), lost.total(), doubled.total())

    def _goes_back(self) -> bool:
        """Once a copy has converged, no row goes back in time, unless a reshard brings changes again."""
        comes_again = self.source.shards[WHOLE].is_dead or self.source.was_mixed
        if comes_again or self.replicates_since is None or self.was_disturbed:
            return False
        newest: dict[int, int] = {}
        for entry in self.target.log():
            if entry.key is None or entry.value is None:
                continue
            if entry.number > self.replicates_since and entry.value < newest.get(entry.key, 0):
                return True
            newest[entry.key] = max(entry.value, newest.get(entry.key, 0))
        return False

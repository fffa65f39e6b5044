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
  Those that look at rows see it where it came before the last comparison of all rows, the others at any time.
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
_WRITES, _GOES_WRONG = 0.2, 0.005
"""How probable they are at each step of the end: a write to the source during a cutover, and a fault."""
_ROWS_AT_ONCE, _MOST_ROUNDS = 3, 6
_SEE_ALL = "full", "checksum"
"""Verifiers that see what is in no log of the source whenever it was written."""

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
        # What does not
        self.driver: Driver | None = None
        self.late_drivers: list[Driver] = []
        self.attempts: list[Attempt] = []
        self.comparisons: list[Iterator[None]] = []
        self.passing: Iterator[None] | None = None
        self.cutover: Iterator[None] | None = None
        self.was_last_pass_begun = False
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
            "cutover": (1, self._cut_over),
        }
        if self.case.reshards:
            actions["reshard"] = 2, self.source.reshard
            actions["late write"] = 3, self.source.write_late
            actions["shard dies"] = 0.3, self.source.kill_old_shard
            actions["shard and driver die"] = 0.5, self._lose_site
        if self.case.has_faults:
            actions["rogue write"] = 0.5, self._write_rogue
            actions["wrong write"] = 0.5, self._make_fault
        return actions

    # Drivers and attempts

    def _restart(self) -> None:
        if self.driver is None:
            is_resumed = self.lines.find() is not None
            self.driver = Driver(self)
            if is_resumed or self.case.verify == "iterative":
                self._begin_pass()
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
        self.driver, self.cutover, self.comparisons, self.passing = None, None, [], None
        self.was_last_pass_begun = False  # the next cutover makes another one

    def _lose_site(self) -> None:
        self._crash()
        self.source.reshard()
        self.source.kill_old_shard()

    # What goes wrong

    def _write_rogue(self) -> None:
        key = self.rng.randrange(KEYS)
        kind = self.rng.random()
        if kind >= 0.2 and not self._would_be_found():
            return
        self.was_disturbed = True
        if kind < 0.2:
            self.target.append(-1, None)
        elif kind < 0.6:
            self.target.insert(key, -1, None, over=True)
        else:
            self.target.delete(key, None)

    def _make_fault(self) -> None:
        self.fault = self.rng.choice((VALUE, SKIPPED, ELSEWHERE))

    def take_fault(self) -> str | None:
        if self.fault == ELSEWHERE and not self._would_be_found():
            return None
        fault, self.fault = self.fault, None
        self.was_disturbed = self.was_disturbed or fault is not None
        return fault

    def _would_be_found(self) -> bool:
        """Whether somebody has yet to see a row that is written now, and that no change of the source is about."""
        return self.case.verify in _SEE_ALL or not self.was_last_pass_begun

    def fail(self, reason: str) -> None:
        raise Caught(reason)

    def entered(self, phase: str) -> None:
        if phase == REPLICATE and self.replicates_since is None:
            self.replicates_since = len(self.target.log())

    # Verifiers

    def _begin_pass(self) -> None:
        """Over all rows; one that was under way is given up for it."""
        if self.case.verify in ("inline", "iterative", "full"):
            self.passing = self._pass()

    def _verify_some(self) -> None:
        """Goes on with the pass that is under way, once the copy has converged."""
        if self.driver is None or self.driver.phase not in (REPLICATE, CUTOVER):
            return
        if self.passing is not None and next(self.passing, self) is self:
            self.passing = None

    def _pass(self) -> Iterator[None]:
        """Mirrors `digest_pass`: a row that differs may be on its way, so nothing is judged here."""
        for low in range(0, KEYS, _ROWS_AT_ONCE):
            high = min(low + _ROWS_AT_ONCE, KEYS)
            wanted = self.source.rows(low, high)
            yield
            held = self.target.rows(low, high)
            for key in range(low, high):
                if wanted.get(key) != held.get(key):
                    self.store.add(key, None)

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
        if held != wanted and compared == taken and driver.phase in (REPLICATE, CUTOVER):
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
        """Mirrors `Cutover`: a pass and rounds of looks while writers write, and the rest while they wait."""
        driver.enter(CUTOVER)
        yield
        self.was_last_pass_begun = True
        if self.case.broken is not Broken.NO_PASS_AT_CUTOVER:
            self._begin_pass()
        while self.passing is not None:
            self._verify_some()
            yield
        for _ in range(self.rng.randint(0, _MOST_ROUNDS)):
            self._reverify()
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
        if self.case.verify == "none" or not self.case.has_transactions:
            return
        keys = range(KEYS) if self.case.verify == "checksum" else self.store.keys()
        for key in keys:
            if self.source.row(key) != self.target.row(key):
                raise Caught(f"row {key} differs")
        if not self.case.reshards and self.source.events() != self.target.events():
            raise Caught("rows without a key differ")

    # The end

    def _finish(self) -> None:
        """Whatever was begun comes to its end.

        Most cutovers are made here. So writers write until they are locked out, and things go wrong now and then.
        """
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
            if self.cutover is not None and self.rng.random() < _WRITES:
                self.source.write()
            if self.case.has_faults and self.rng.random() < _GOES_WRONG:
                self.rng.choice((self._write_rogue, self._make_fault))()
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

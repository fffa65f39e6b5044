"""Verifiers read rows no faster than a task may, and not at all while it is paused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.servers import Database
from tests.transfer.load import fill
from tests.transfer.proving import Proving
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import TruecopyError
from truecopy.transfer.control import Control, Wishes
from truecopy.transfer.gate import Closed, Gate
from truecopy.transfer.limits import Limits
from truecopy.transfer.proof.background import Background
from truecopy.transfer.proof.digest_pass import compare_all
from truecopy.transfer.proof.inline import InlineVerifier
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def proving(spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database) -> Proving:
    made = Proving(spark, mariadb_db, second_mariadb_db, "paced")
    fill(mariadb_db, 20)
    made.run()
    return made


@pytest.mark.long
def test_a_pass_asks_before_each_group_of_chunks(proving: Proving) -> None:
    scene = proving.scene()
    comparisons = [plan.comparison for plan in scene.plans.values()]
    asked = list[Options]()

    def turn(options: Options) -> Options:
        if len(asked) == 2:
            raise Closed("it is over")
        asked.append(replace(options, connections=1))
        return asked[-1]

    results = compare_all(None, comparisons, Options(live=True, chunk_rows=1), turn)
    with pytest.raises(Closed):
        list(results)
    gate = Gate(Limits(), lambda: Wishes(throttle={"connections": 3, "statement_seconds": 0.5}))
    paced = replace(scene, gate=gate).paced(Options())
    assert (paced.connections, paced.chunk_seconds) == (3, 0.5)


@pytest.mark.long
def test_nothing_is_compared_while_the_task_is_paused(proving: Proving) -> None:
    wishes = [Wishes(paused_at=1)]
    gate = Gate(Limits(), lambda: wishes[-1])
    verifier = InlineVerifier(replace(proving.scene(), gate=gate), proving.store())
    verifier.start(resumed=True)
    seen = list[int]()
    working = threading.Thread(target=lambda: seen.append(verifier.work().tables))
    working.start()
    _until(lambda: gate.reason == "paused by hand")
    assert working.is_alive()
    wishes.append(Wishes())
    working.join(30)
    assert seen == [1]
    wishes.append(Wishes(paused_at=1))
    with Background(verifier, 0.1) as background:
        _until(lambda: bool(gate.reason))
        gate.close()  # as at the end of a run, which must not wait for the end of the pause
    background.check()
    verifier.close()


@pytest.mark.long
@pytest.mark.parametrize("how", [{}, {"until_caught_up": True}], ids=["lasting", "caught up"])
def test_a_run_that_goes_on_compares_all_rows_once_it_is_let(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    how: dict[str, Any],
) -> None:
    """A row that nobody changes on the source is in no log: only a comparison of all rows can find it."""
    fill(mariadb_db, 300)
    settings = Settings("paced", mariadb_db.url, second_mariadb_db.url, verify=("inline",))
    Transfer(settings).run(until_caught_up=True)
    second_mariadb_db.execute("UPDATE items SET price = price + 1 WHERE id = 7")
    _pause(second_mariadb_db, paused=True)
    ended = list[TruecopyError]()

    def run() -> None:
        try:
            Transfer(settings).run(**how)
        except TruecopyError as error:
            ended.append(error)

    running = threading.Thread(target=run)
    running.start()
    time.sleep(8)
    assert running.is_alive()
    _pause(second_mariadb_db, paused=False)
    running.join(120)
    assert not running.is_alive()
    assert isinstance(ended[0], NotProven)
    assert "id=7" in str(ended[0])


def _pause(target: Database, *, paused: bool) -> None:
    with connect(parse_endpoint(target.url)) as session:
        control = Control(cast(Any, session), "paced")
        control.pause() if paused else control.resume()


def _until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

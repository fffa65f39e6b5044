"""What a certificate says of tables that were not compared as a whole: the rows that were, never a guess."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import Database
from tests.transfer.cutting import fill, started
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.stream.offset import Offset
from truecopy.transfer.cutover.evidence import Evidence
from truecopy.transfer.cutover.proof import Proof
from truecopy.transfer.run import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_that_were_compared_are_no_guess(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db)
    settings = started(mariadb_db, second_mariadb_db)
    source, target = parse_endpoint(settings.source), parse_endpoint(settings.target)
    with connect(source) as here, connect(target) as there:
        plans = Transfer(settings).planned(here, there)
    proof = Proof((), {})
    copied = dict.fromkeys(plans, 77)
    final, now = Offset({}), time.time()
    evidence = Evidence("cut", source, target, plans, proof, final, None, "none", now, 1.0, copied)
    certificate = json.loads(Path(evidence.issue()).read_text(encoding="utf-8"))
    for table in certificate["tables"]:
        assert table["rows_compared"] == 77
        assert "compared as they were copied" in table["reason"]

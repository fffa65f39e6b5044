"""What is read of many validations at once is what is read of each."""

from __future__ import annotations

from truecopy.metastore.validation_errors import Found
from truecopy.metastore.validations import PendingPart, Stage, Validations


def _begun(store: Validations, task: str, errors: int) -> None:
    epoch = store.claim(task, "full", {}).epoch
    found = [Found(f"{task} {number}", "orders", kind="missing") for number in range(errors)]
    counts = {"insert": errors, "update": 1, "delete": 0}
    pending = [PendingPart("orders/1", b"rows", counts, 1, 55)] if errors else []
    store.store(task, epoch, {}, {"insert": 3}, ("orders/1",), pending, found, caught_up=True)


def test_a_page_of_errors_is_of_several_tasks_in_the_order_of_their_numbers(
    metastore_url: str,
) -> None:
    store = Validations(metastore_url)
    for task in ("shop:-80", "shop:80-", "other"):
        _begun(store, task, 4)
    legs = ("shop:-80", "shop:80-")
    numbers = [error.id for leg in legs for error in store.errors.of(leg)]
    shown = [error.id for error in store.errors.page(legs, ("new",), 3, 3)]
    assert shown == numbers[3:6]
    assert store.errors.ignore("shop:-80", numbers[:2]) == 2
    shown = [error.id for error in store.errors.page(legs, ("new", "resolved"), 0, 100)]
    assert shown == numbers[2:]
    assert store.errors.page(legs, ("new",), 100, 10) == []


def test_all_validations_are_read_as_each_by_itself(metastore_url: str) -> None:
    store = Validations(metastore_url)
    for task, errors in (("shop", 5), ("bare", 0)):
        _begun(store, task, errors)
    store.set_stages("shop", [Stage("orders"), Stage("notes", "stopped", "no key")])
    read = [
        (
            store.find(task),
            store.pending(task),
            store.errors.counts(task),
            store.stages(task),
        )
        for task in ("bare", "shop")
    ]
    assert store.all() == read

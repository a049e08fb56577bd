"""The revoked tasks of a node, for several threads."""

from threading import Thread

from celeriac.node.revoked import SharedRevokedSet


def test_what_is_looked_through_does_not_change_meanwhile() -> None:
    revoked = SharedRevokedSet()
    revoked.merge(["a", "b"], now=1.0)

    seen = []
    for task_id in revoked:
        seen.append(task_id)
        revoked.add(f"{task_id}{task_id}", now=2.0)

    assert seen == ["a", "b"]
    assert list(revoked) == ["a", "b", "aa", "bb"]


def test_the_time_is_now_where_it_is_not_given() -> None:
    revoked = SharedRevokedSet(max_age=3600.0)

    revoked.add("a")
    revoked.merge(["b"])
    revoked.purge()

    assert list(revoked) == ["a", "b"]
    assert [task_id for task_id, age in revoked.ages() if age < 3600.0] == ["a", "b"]


def test_many_threads_add_merge_and_look_at_once() -> None:
    revoked = SharedRevokedSet(max_size=500)
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(300):
                revoked.add(f"{number}-{turn}", now=float(turn))
                revoked.merge([f"m{number}-{turn}", "all"], now=float(turn))
                assert f"{number}-never" not in revoked
                list(revoked)
                revoked.ages(now=float(turn))
                revoked.discard(f"{number}-{turn}")
        except Exception as error:  # noqa: BLE001 - the test is to see it
            failures.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(revoked) <= 500


def test_what_was_kept_comes_back_with_its_age() -> None:
    before = SharedRevokedSet(max_age=100.0)
    before.add("old", now=0.0)
    before.add("new", now=50.0)

    after = SharedRevokedSet(max_age=100.0)
    after.restore(before.ages(now=60.0), now=1000.0)
    after.purge(now=1041.0)

    assert list(after) == ["new"]

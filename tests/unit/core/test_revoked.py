"""The revoked set: bounded in number and age, whoever greets whom."""

from collections import Counter

from celeriac.core.revoked import REVOKED_MAX_AGE, REVOKED_MAX_SIZE, RevokedSet
from celeriac.wire.hello import decode_revoked, encode_revoked


def revoked_at(*moments: float, max_size: int = 100, max_age: float = 60.0) -> RevokedSet:
    """Return a set in which the ids "0", "1", … were revoked at the moments given."""
    revoked = RevokedSet(max_size=max_size, max_age=max_age)
    for number, moment in enumerate(moments):
        revoked.add(str(number), now=moment)
    return revoked


def test_an_id_that_was_added_is_in_the_set() -> None:
    revoked = RevokedSet()

    revoked.add("a", now=0.0)

    assert "a" in revoked
    assert "b" not in revoked
    assert len(revoked) == 1


def test_ids_come_oldest_first() -> None:
    revoked = RevokedSet()

    for now, task_id in enumerate(["c", "a", "b"]):
        revoked.add(task_id, now=float(now))

    assert list(revoked) == ["c", "a", "b"]


def test_past_its_size_the_oldest_ids_go() -> None:
    revoked = revoked_at(0.0, 1.0, 2.0, max_size=3)

    revoked.add("new", now=3.0)

    assert list(revoked) == ["1", "2", "new"]


def test_an_id_is_kept_until_it_is_too_old() -> None:
    revoked = revoked_at(0.0, max_age=60.0)

    revoked.purge(now=59.9)

    assert list(revoked) == ["0"]


def test_an_id_that_is_too_old_goes() -> None:
    revoked = revoked_at(0.0, 1.0, max_age=60.0)

    revoked.purge(now=60.0)

    assert list(revoked) == ["1"]


def test_to_add_an_id_drops_those_that_are_too_old() -> None:
    revoked = revoked_at(0.0, 1.0, max_age=60.0)

    revoked.add("new", now=100.0)

    assert list(revoked) == ["new"]


def test_to_add_an_id_again_renews_its_age() -> None:
    revoked = revoked_at(0.0, 1.0, max_age=60.0)

    revoked.add("0", now=50.0)

    revoked.purge(now=100.0)
    assert list(revoked) == ["0"]


def test_to_add_an_id_again_makes_it_the_newest() -> None:
    revoked = revoked_at(0.0, 1.0, 2.0)

    revoked.add("0", now=3.0)

    assert list(revoked) == ["1", "2", "0"]


def test_to_merge_an_id_we_hold_keeps_its_age() -> None:
    revoked = revoked_at(0.0, max_age=60.0)

    revoked.merge(["0"], now=50.0)

    revoked.purge(now=60.0)
    assert list(revoked) == []


def test_to_merge_an_id_we_hold_keeps_its_place() -> None:
    revoked = revoked_at(0.0, 1.0)

    revoked.merge(["1", "new", "0"], now=2.0)

    assert list(revoked) == ["0", "1", "new"]


def greet_for_ever(one: RevokedSet, other: RevokedSet, *, begin: int) -> None:
    """Let two nodes tell each other what they hold, every ten seconds."""
    for now in range(begin, 1000, 10):
        other.merge(decode_revoked(encode_revoked(one)), now=float(now))
        one.merge(decode_revoked(encode_revoked(other)), now=float(now))


def test_two_nodes_that_greet_each_other_for_ever_forget_an_id() -> None:
    one, other = revoked_at(0.0, max_age=60.0), RevokedSet(max_age=60.0)

    greet_for_ever(one, other, begin=0)

    assert [*one, *other] == []


def test_two_nodes_that_heard_of_an_id_at_different_times_forget_it() -> None:
    one, other = revoked_at(0.0, max_age=60.0), RevokedSet(max_age=60.0)

    greet_for_ever(one, other, begin=50)

    assert [*one, *other] == []


def test_a_merged_id_grows_old_from_the_time_we_heard_of_it() -> None:
    revoked = RevokedSet(max_age=60.0)

    revoked.merge(["a"], now=50.0)

    revoked.purge(now=109.0)
    assert list(revoked) == ["a"]


def test_a_merge_keeps_the_order_of_the_peer() -> None:
    revoked = RevokedSet()

    revoked.merge(decode_revoked({"new": [9.5, "new"], "old": [1.5, "old"]}), now=0.0)

    assert list(revoked) == ["old", "new"]


def test_a_merge_of_too_many_keeps_the_newest() -> None:
    revoked = RevokedSet(max_size=3)

    revoked.merge([str(number) for number in range(10)], now=0.0)

    assert list(revoked) == ["7", "8", "9"]


def test_a_discarded_id_is_gone() -> None:
    revoked = revoked_at(0.0, 1.0)

    revoked.discard("0")

    assert list(revoked) == ["1"]


def test_to_discard_an_id_we_do_not_hold_does_nothing() -> None:
    revoked = revoked_at(0.0)

    revoked.discard("never")

    assert list(revoked) == ["0"]


def test_by_default_it_holds_what_a_stock_worker_holds() -> None:
    revoked = RevokedSet()

    limits = revoked.max_size, revoked.max_age

    assert limits == (REVOKED_MAX_SIZE, REVOKED_MAX_AGE) == (50_000, 10_800.0)


# -- from one run to the next


def test_ages_are_told_oldest_first() -> None:
    revoked = revoked_at(0.0, 10.0)

    ages = revoked.ages(now=15.0)

    assert ages == [("0", 15.0), ("1", 5.0)]


def test_what_is_too_old_is_not_told() -> None:
    revoked = revoked_at(0.0, 10.0, max_age=60.0)

    ages = revoked.ages(now=60.0)

    assert ages == [("1", 50.0)]


def test_what_is_restored_goes_on_growing_old() -> None:
    revoked = RevokedSet(max_age=60.0)

    revoked.restore([("a", 50.0), ("b", 5.0)], now=1000.0)

    assert list(revoked) == ["a", "b"]
    revoked.purge(now=1010.0)
    assert list(revoked) == ["b"]


def test_what_is_restored_too_old_is_left_out() -> None:
    revoked = RevokedSet(max_age=60.0)

    revoked.restore([("a", 60.0), ("b", 59.0)], now=0.0)

    assert list(revoked) == ["b"]


def test_what_is_restored_beside_others_takes_its_place_by_age() -> None:
    revoked = revoked_at(0.0, 20.0, max_age=60.0)

    revoked.restore([("a", 15.0)], now=25.0)

    assert list(revoked) == ["0", "a", "1"]
    revoked.purge(now=70.0)
    assert list(revoked) == ["1"]


def test_of_two_ages_the_lesser_counts() -> None:
    revoked = revoked_at(100.0, 100.0, max_age=60.0)

    revoked.restore([("0", 50.0), ("1", -5.0)], now=110.0)

    assert revoked.ages(now=110.0) == [("0", 10.0), ("1", 0.0)]


def test_what_is_told_and_restored_is_the_same() -> None:
    revoked, again = revoked_at(0.0, 10.0), RevokedSet()

    again.restore(revoked.ages(now=20.0), now=500.0)

    assert again.ages(now=500.0) == revoked.ages(now=20.0)


# -- peers that tell very many


def test_ids_of_one_peer_push_out_no_ids_of_another() -> None:
    revoked = RevokedSet(max_size=10)
    revoked.add("own", now=0.0)
    revoked.merge(["a1", "a2", "a3"], now=1.0, peer="a")

    revoked.merge([f"x{number}" for number in range(60)], now=2.0, peer="x")

    assert [*revoked] == ["own", "a1", "a2", "a3", *(f"x{number}" for number in range(54, 60))]


def test_peers_that_tell_too_many_share_the_room() -> None:
    revoked = RevokedSet(max_size=10)

    for peer in "abab":
        revoked.merge([f"{peer}{number}" for number in range(20)], now=1.0, peer=peer)

    assert Counter(task_id[0] for task_id in revoked) == {"a": 5, "b": 5}


def test_own_revocations_go_last() -> None:
    revoked = RevokedSet(max_size=3)
    revoked.merge(["a1", "a2", "a3"], now=0.0, peer="a")

    for task_id in ("a3", "own1", "own2", "own3"):
        revoked.add(task_id, now=1.0)

    assert [*revoked] == ["own1", "own2", "own3"]


def test_further_peers_count_as_one() -> None:
    revoked = RevokedSet(max_size=1000)
    for number in range(300):
        revoked.merge([f"first{number}"], now=0.0, peer=f"peer{number}")

    revoked.merge([f"x{number}" for number in range(2000)], now=1.0, peer="x")

    kept = Counter(task_id.rstrip("0123456789") for task_id in revoked)
    assert kept["first"] >= 100
    assert kept.total() == 1000


def test_an_id_that_is_forgotten_or_too_old_is_no_part_of_a_share() -> None:
    revoked = RevokedSet(max_size=4, max_age=60.0)
    revoked.merge(["a1", "a2"], now=0.0, peer="a")
    revoked.discard("a1")
    revoked.purge(now=60.0)

    revoked.merge(["a3"], now=60.0, peer="a")
    revoked.merge(["x1", "x2", "x3", "x4"], now=60.0, peer="x")

    assert [*revoked] == ["a3", "x2", "x3", "x4"]

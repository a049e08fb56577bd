"""The failure detector: who joins, who is suspect, who is lost, and who only seems to be."""

import pytest

from celeriac.core.member import Liveness, Sign
from celeriac.core.membership import (
    FORGET_AFTER,
    PULSE,
    Effect,
    Joined,
    Left,
    Lost,
    Membership,
    Refuted,
    Suspected,
)
from celeriac.errors import CallerError

US = "us@here"
PEER = "peer@there"
PID = 7


class Observer:
    """A membership in a time of its own, which passes in pulses."""

    def __init__(self, *, at: float = 0.0, max_members: int = 5000) -> None:
        self.at = at
        self.membership = Membership(US, max_members=max_members, now=at)
        self.membership.tick(at)
        self.effects: list[Effect] = []
        #: Peers that beat by themselves as time passes, and their clocks.
        self.beating: dict[str, int] = {}

    def hear(self, subject: str = "heartbeat", **fields: object) -> list[Effect]:
        """Hear the peer; by default a regular heartbeat."""
        known: dict[str, object] = {"hostname": PEER, "subject": subject, "pid": PID, "freq": 2.0}
        sign = Sign(**(known | fields))  # type: ignore[arg-type]
        effects = self.membership.receive(sign, self.at)
        self.effects += effects
        return effects

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass; return what came of it. Those who beat do so every two seconds."""
        found: list[Effect] = []
        for _ in range(round(seconds / PULSE)):
            self.at += PULSE
            if self.at % 2 == 0:
                for hostname in self.beating:
                    self.beating[hostname] += 1
                    found += self.hear(hostname=hostname, clock=self.beating[hostname])
            found += self.membership.tick(self.at)
        self.effects += found
        return found

    def stall(self, seconds: float) -> list[Effect]:
        """Do nothing for a while, and notice when it is over."""
        self.at += seconds
        found = self.membership.tick(self.at)
        self.effects += found
        return found

    def state(self, hostname: str = PEER) -> Liveness:
        return self.membership.members[hostname].state


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def acquainted(observer: Observer) -> Observer:
    """One that has heard the peer beat regularly, up to just now, with clock 15."""
    for clock in range(10, 16):
        observer.hear(clock=clock)
        observer.wait(2.0)
    observer.hear(clock=16)
    observer.effects.clear()
    return observer


def names(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


# -- joining and leaving


@pytest.mark.parametrize("subject", ["online", "heartbeat", "other"])
def test_the_first_sign_of_life_is_a_join(observer: Observer, subject: str) -> None:
    effects = observer.hear(subject, clock=1)

    assert effects == [Joined(PEER, PID)]
    assert observer.state() is Liveness.ALIVE


def test_a_node_joins_once(observer: Observer) -> None:
    observer.hear("online", clock=1)

    effects = observer.hear("heartbeat", clock=2) + observer.hear("online", clock=3)

    assert effects == []


def test_a_farewell_is_a_leave(acquainted: Observer) -> None:
    effects = acquainted.hear("offline", clock=20)

    assert effects == [Left(PEER, PID)]
    assert acquainted.state() is Liveness.LEFT
    assert acquainted.membership.members[PEER].reason == "shut down cleanly"


def test_a_farewell_of_a_stranger_is_no_news(observer: Observer) -> None:
    effects = observer.hear("offline", clock=20)

    assert effects == []
    assert PEER not in observer.membership.members


def test_a_farewell_older_than_what_came_since_is_none(acquainted: Observer) -> None:
    effects = acquainted.hear("offline", clock=15)

    assert effects == []
    assert acquainted.state() is Liveness.ALIVE


@pytest.mark.parametrize("subject", ["heartbeat", "other", "online", "offline"])
def test_what_was_sent_before_a_farewell_brings_nobody_back(acquainted: Observer, subject: str) -> None:
    acquainted.hear("offline", clock=20)

    effects = acquainted.hear(subject, clock=19)

    assert effects == []
    assert acquainted.state() is Liveness.LEFT
    assert acquainted.membership.stale == 1


def test_a_farewell_that_overtook_its_heartbeat_keeps_the_node_out(observer: Observer) -> None:
    observer.hear("offline", clock=20)

    effects = observer.hear("heartbeat", clock=19)

    assert effects == []
    assert PEER not in observer.membership.members


@pytest.mark.parametrize("subject", ["heartbeat", "other", "online"])
def test_what_was_sent_after_a_farewell_brings_a_node_back(acquainted: Observer, subject: str) -> None:
    acquainted.hear("offline", clock=20)

    effects = acquainted.hear(subject, clock=21)

    assert effects == [Joined(PEER, PID)]


def test_a_lost_node_that_speaks_again_is_back(acquainted: Observer) -> None:
    acquainted.wait(20.0)

    effects = acquainted.hear(clock=17)

    assert effects == [Joined(PEER, PID)]


def test_the_last_heartbeat_again_does_not_bring_a_lost_node_back(acquainted: Observer) -> None:
    acquainted.wait(20.0)

    effects = acquainted.hear(clock=16)

    assert effects == []
    assert acquainted.state() is Liveness.LOST


def test_a_lost_node_that_said_farewell_left_after_all(acquainted: Observer) -> None:
    acquainted.wait(20.0)

    effects = acquainted.hear("offline", clock=17)

    assert effects == []
    assert acquainted.state() is Liveness.LEFT


# -- restarts


def test_another_process_that_announces_itself_takes_the_place(acquainted: Observer) -> None:
    effects = acquainted.hear("online", pid=8, clock=30)

    assert effects == [Lost(PEER, PID, "replaced by process 8"), Joined(PEER, 8)]


def test_the_late_announcement_of_a_former_process_takes_no_place(acquainted: Observer) -> None:
    acquainted.hear("online", pid=8, clock=30, timestamp=100.0)

    effects = acquainted.hear("online", pid=PID, clock=9, timestamp=50.0)

    assert effects == []
    assert acquainted.membership.members[PEER].pid == 8


def test_two_nodes_under_one_name_do_not_take_turns(acquainted: Observer) -> None:
    acquainted.hear("online", pid=8, clock=30, timestamp=100.0)

    effects = acquainted.hear("heartbeat", pid=PID, clock=31, timestamp=101.0)

    assert effects == []


def test_the_heartbeat_of_another_process_takes_the_place_of_a_suspect(acquainted: Observer) -> None:
    acquainted.wait(7.0)

    effects = acquainted.hear("heartbeat", pid=8, clock=30)

    assert names(effects) == ["Lost", "Joined"]


def test_a_farewell_of_a_former_process_does_not_end_the_present_one(acquainted: Observer) -> None:
    acquainted.hear("online", pid=8, clock=30)

    effects = acquainted.hear("offline", pid=PID, clock=40)

    assert effects == []
    assert acquainted.state() is Liveness.ALIVE


def test_a_process_that_starts_anew_under_its_pid_is_another(observer: Observer) -> None:
    observer.hear(clock=50_000, timestamp=100.0)

    effects = observer.hear("online", clock=3, timestamp=110.0)

    assert effects == [Lost(PEER, PID, "restarted"), Joined(PEER, PID)]


def test_one_that_left_comes_back_under_its_pid_though_its_clock_fell(observer: Observer) -> None:
    observer.hear(clock=50_000, timestamp=100.0)
    observer.hear("offline", clock=50_001, timestamp=101.0)

    effects = observer.hear("online", clock=3, timestamp=110.0) + observer.hear(clock=4, timestamp=112.0)

    assert effects == [Joined(PEER, PID)]


def test_the_late_announcement_of_a_node_that_is_known_changes_nothing(observer: Observer) -> None:
    observer.hear(clock=12, timestamp=102.0)

    effects = observer.hear("online", clock=10, timestamp=100.0)

    assert effects == []


def test_events_of_a_child_are_no_node_of_their_own(acquainted: Observer) -> None:
    effects = acquainted.hear("other", pid=99, clock=5)

    assert effects == []
    assert acquainted.membership.members[PEER].pid == PID


# -- silence


def test_a_silent_node_is_suspect_then_lost(acquainted: Observer) -> None:
    effects = acquainted.wait(20.0)

    assert names(effects) == ["Suspected", "Lost"]
    assert acquainted.state() is Liveness.LOST


def test_a_node_is_lost_within_ten_seconds_of_its_last_word(acquainted: Observer) -> None:
    heard_at = acquainted.at

    while acquainted.state() is not Liveness.LOST:
        acquainted.wait(PULSE)

    assert acquainted.at - heard_at <= 10.0


def test_three_heartbeats_of_silence_are_no_suspicion(acquainted: Observer) -> None:
    effects = acquainted.wait(6.0)

    assert effects == []


def test_a_suspicion_says_how_unlikely_the_silence_is(acquainted: Observer) -> None:
    (suspected,) = acquainted.wait(7.0)

    assert isinstance(suspected, Suspected)
    assert suspected.phi > 8
    assert suspected.silence == 6.5
    assert acquainted.membership.members[PEER].reason == "silent for 6.5 s"


@pytest.mark.parametrize("subject", ["heartbeat", "other", "online"])
def test_a_suspect_that_shows_itself_is_alive(acquainted: Observer, subject: str) -> None:
    acquainted.wait(7.0)

    effects = acquainted.hear(subject, clock=17)

    assert effects == [Refuted(PEER, PID)]
    assert acquainted.state() is Liveness.ALIVE
    assert acquainted.wait(6.0) == []


def test_a_reply_to_a_command_is_a_sign_of_life(acquainted: Observer) -> None:
    acquainted.wait(7.0)

    effects = acquainted.membership.receive(Sign(PEER), acquainted.at)

    assert effects == [Refuted(PEER, PID)]


def test_a_node_that_is_irregular_is_given_more_time(observer: Observer) -> None:
    clock = 0
    for gap in (1.0, 8.0) * 20:
        clock += 1
        observer.hear(clock=clock)
        observer.wait(gap)
    observer.hear(clock=clock + 1)

    effects = observer.wait(12.0)

    assert effects == []


def test_one_long_gap_of_a_newcomer_does_not_pass_for_its_habit(observer: Observer) -> None:
    observer.hear(clock=1)
    observer.wait(9.0)
    observer.hear(clock=2)

    effects = observer.wait(10.0)

    assert names(effects) == ["Suspected", "Lost"]


def test_task_events_keep_a_node_that_does_not_beat_alive(acquainted: Observer) -> None:
    for clock in range(20, 60):
        acquainted.hear("other", clock=clock, freq=None)
        acquainted.wait(1.0)

    assert acquainted.effects == []


def test_a_node_known_by_its_tasks_alone_is_given_minutes(observer: Observer) -> None:
    observer.hear("other", clock=1, freq=None)

    assert observer.wait(170.0) == []
    assert names(observer.wait(20.0)) == ["Suspected"]


def test_the_first_heartbeat_of_a_node_known_by_its_tasks_is_no_second_join(observer: Observer) -> None:
    observer.hear("other", pid=99, clock=1, freq=None)

    effects = observer.hear("heartbeat", clock=3)

    assert effects == []
    assert observer.membership.members[PEER].pid == PID
    assert names(observer.wait(20.0)) == ["Suspected", "Lost"]


def test_a_heartbeat_that_says_nothing_true_of_its_frequency_does_not_widen_the_window(
    acquainted: Observer,
) -> None:
    acquainted.hear(clock=17, freq=None)

    effects = acquainted.wait(10.0)

    assert names(effects) == ["Suspected", "Lost"]


def test_a_node_that_beats_seldom_is_given_its_own_time(observer: Observer) -> None:
    observer.hear(clock=1, freq=60.0)

    assert observer.wait(180.0) == []
    assert names(observer.wait(160.0)) == ["Suspected", "Lost"]


def test_a_node_that_says_it_beats_all_the_time_is_not_suspected_all_the_time(observer: Observer) -> None:
    observer.hear(clock=1, freq=1e-9)

    assert observer.wait(3.0) == []


# -- our own ears


def test_time_when_we_were_stalled_is_nobodys_silence(acquainted: Observer) -> None:
    acquainted.wait(5.0)

    effects = acquainted.stall(60.0) + acquainted.wait(PULSE)

    assert effects == []


def test_a_stall_does_not_spend_the_time_of_a_suspect(acquainted: Observer) -> None:
    acquainted.wait(7.0)

    effects = acquainted.stall(60.0) + acquainted.wait(PULSE)

    assert effects == []


def test_one_that_dies_while_we_are_stalled_is_lost_all_the_same(acquainted: Observer) -> None:
    acquainted.stall(60.0)

    effects = acquainted.wait(14.0)

    assert names(effects) == ["Suspected", "Lost"]


def test_the_tick_that_notices_a_stall_judges_nobody(acquainted: Observer) -> None:
    while not acquainted.wait(PULSE):
        pass  # suspect now
    acquainted.wait(2.5)

    effects = acquainted.stall(1.5)

    assert effects == []


def test_without_a_link_nobody_is_lost_nor_suspected(acquainted: Observer) -> None:
    acquainted.membership.disconnected(acquainted.at)

    effects = acquainted.wait(600.0)

    assert effects == []


def test_after_a_link_is_made_again_there_is_a_grace_of_two_heartbeats(acquainted: Observer) -> None:
    acquainted.wait(9.0)  # all but lost
    acquainted.membership.disconnected(acquainted.at)
    acquainted.wait(60.0)
    acquainted.membership.reconnected(acquainted.at)

    assert acquainted.wait(3.5) == []
    assert names(acquainted.wait(10.0)) == ["Lost"]


def test_a_node_that_is_ill_itself_gives_others_more_time(acquainted: Observer) -> None:
    while not acquainted.wait(PULSE):
        pass  # suspect now
    for _ in range(4):
        acquainted.stall(2.0)

    effects = acquainted.wait(4.0)

    assert effects == []


def test_what_others_confirm_outweighs_our_doubts(acquainted: Observer) -> None:
    witnesses = [f"witness{number}@there" for number in range(4)]
    acquainted.beating = dict.fromkeys(witnesses, 10)
    acquainted.wait(3.0)
    while "Suspected" not in names(acquainted.wait(PULSE)):
        pass
    for _ in range(4):
        acquainted.stall(2.0)
    for witness in witnesses:
        acquainted.membership.confirm(PEER, pid=PID, by=witness)

    effects = acquainted.wait(4.0)

    assert names(effects) == ["Lost"]


@pytest.mark.parametrize("by", ["stranger@there", PEER, US])
def test_only_another_node_that_is_there_confirms_anything(acquainted: Observer, by: str) -> None:
    acquainted.membership.confirm(PEER, pid=PID, by=by)

    assert acquainted.membership.members[PEER].confirmed_by == set()


def test_what_is_confirmed_counts_until_the_node_is_heard_again(acquainted: Observer) -> None:
    acquainted.hear(hostname="witness@there", clock=1)
    acquainted.membership.confirm(PEER, pid=PID, by="witness@there")

    acquainted.hear(clock=17)

    assert acquainted.membership.members[PEER].confirmed_by == set()


def test_our_own_stall_is_no_irregularity_of_a_peer(acquainted: Observer) -> None:
    for clock in range(20, 30):
        acquainted.stall(10.0)
        acquainted.hear(clock=clock)
        acquainted.wait(2.0)

    assert acquainted.membership.members[PEER].patience == 6.0


def test_one_that_does_not_hear_itself_doubts_that_others_are_silent(acquainted: Observer) -> None:
    while acquainted.at % 2:
        acquainted.wait(PULSE)
    for clock in range(100, 110):
        acquainted.membership.beat(clock, acquainted.at)
        acquainted.wait(2.0)

    assert acquainted.state() is Liveness.SUSPECT


# -- ourselves, and limits


def test_the_node_itself_is_always_there(acquainted: Observer) -> None:
    acquainted.membership.disconnected(acquainted.at)
    acquainted.wait(100.0)
    acquainted.hear("offline", hostname=US, clock=500)

    assert [member.hostname for member in acquainted.membership.alive()] == [US, PEER]
    assert acquainted.membership.alive_count == 2
    assert acquainted.state(US) is Liveness.ALIVE


def test_what_we_say_ourselves_is_no_news(observer: Observer) -> None:
    effects = observer.hear("online", hostname=US, clock=1)

    assert effects == []


def test_a_suspect_is_there_until_it_is_lost(acquainted: Observer) -> None:
    acquainted.wait(7.0)

    assert [member.hostname for member in acquainted.membership.alive()] == [US, PEER]


def test_phi_rises_with_the_silence_and_is_zero_for_those_who_are_gone(acquainted: Observer) -> None:
    levels = []
    for _ in range(3):
        acquainted.wait(2.0)
        levels.append(acquainted.membership.phi(PEER, acquainted.at))
    acquainted.wait(20.0)

    assert levels == sorted(levels)
    assert levels[0] < 1
    assert levels[2] > 8
    assert acquainted.membership.phi(PEER, acquainted.at) == 0.0


def test_of_too_many_the_one_gone_longest_is_forgotten() -> None:
    full = Observer(max_members=3)
    for number in range(3):
        full.hear(hostname=f"n{number}", clock=1)
    for number in (1, 0):
        full.hear("offline", hostname=f"n{number}", clock=2)
        full.wait(PULSE)

    effects = full.hear(hostname="n3", clock=1)

    assert effects == [Joined("n3", PID)]
    assert set(full.membership.members) == {US, "n0", "n2", "n3"}


def test_while_all_are_there_newcomers_are_turned_away() -> None:
    full = Observer(max_members=3)
    for number in range(3):
        full.hear(hostname=f"n{number}", clock=1)

    effects = full.hear(hostname="n3", clock=1)

    assert effects == []
    assert set(full.membership.members) == {US, "n0", "n1", "n2"}
    assert full.membership.turned_away == 1


def test_a_node_that_comes_back_needs_no_second_place() -> None:
    full = Observer(max_members=2)
    for number in range(2):
        full.hear(hostname=f"n{number}", clock=1)
    full.hear("offline", hostname="n0", clock=2)

    effects = full.hear(hostname="n0", clock=3)

    assert effects == [Joined("n0", PID)]
    assert set(full.membership.members) == {US, "n0", "n1"}


def test_who_is_gone_for_an_hour_is_forgotten(acquainted: Observer) -> None:
    acquainted.hear("offline", clock=20)
    acquainted.beating = {"other@there": 1}

    acquainted.wait(FORGET_AFTER + 1)

    assert set(acquainted.membership.members) == {US, "other@there"}


def test_farewells_are_bounded_too() -> None:
    flooded = Observer(max_members=10)

    for number in range(1000):
        flooded.hear("offline", hostname=f"n{number}", clock=1)

    assert len(flooded.membership._farewells) == 10


@pytest.mark.parametrize("bad", [{"freq": 0.0}, {"pulse": 0.0}, {"max_members": 0}])
def test_what_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(CallerError, match="above 0"):
        Membership(US, **bad)  # type: ignore[arg-type]

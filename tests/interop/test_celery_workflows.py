"""What the events of real workers tell of chains, groups and chords, and what they do not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from celeriac.model.answer import WorkflowStory
from celeriac.views.live_workflow import live_workflow
from celeriac.views.story import kind_texts
from tests.interop.conftest import Pair
from tests.watcher import Watcher


@dataclass(frozen=True)
class Chords:
    """Chords that were run to their ends: the ids of the body and of the header of each."""

    ids: dict[str, list[str]]
    watcher: Watcher

    def workflow(self, uuid: str) -> WorkflowStory:
        story = live_workflow(self.watcher.state, uuid)
        assert story is not None
        return story


@pytest.fixture(scope="module")
def chords(pair: Pair) -> Iterator[Chords]:
    # One after the other: of two members that end at once, one may be told of after the body has begun.
    with (
        pair.console() as console,
        pair.worker("--without-mingle", pool="solo") as worker,
        Watcher(pair.app()) as watcher,
    ):
        ids = console.ask("chords")
        # A chain of four, of which one is a group of three; and a chord of three.
        watcher.wait_for(lambda: watcher.types["task-succeeded"] == 10)
        assert worker.hostname in watcher.state.workers
        yield Chords(ids, watcher)


def test_a_chord_within_a_chain_is_told_with_all_that_its_body_waited_for(chords: Chords) -> None:
    body, *header = chords.ids["chained"]

    story = chords.workflow(body)

    kinds = dict(zip([each.uuid for each in story.tasks], kind_texts(story.tasks), strict=True))
    assert Counter(kinds.values()) == {"": 1, "group of 3": 3, "chord body": 1, "chain link": 1}
    assert {uuid for uuid, kind in kinds.items() if kind == "group of 3"} == {*header}
    assert kinds[body] == "chord body"
    told = {each.uuid: each for each in story.tasks}
    assert {told[each].group for each in header} == {told[body].waits_for}


def test_the_critical_path_of_it_leads_through_the_member_that_ended_last(chords: Chords) -> None:
    body, *header = chords.ids["chained"]

    path = chords.workflow(body).critical_path

    assert path is not None
    first, member, joined, last = path
    told = {each.uuid: each for each in chords.workflow(body).tasks}
    assert member == max(header, key=lambda each: told[each].end_at or 0.0)
    assert (first, joined) == (chords.workflow(body).root_id, body)
    assert told[last].parent_id == body


def test_of_a_chord_that_a_client_sent_events_tell_one_member_alone(chords: Chords) -> None:
    body, *header = chords.ids["alone"]

    of_body = [each.uuid for each in chords.workflow(body).tasks]

    assert len(of_body) == 2
    assert len({*of_body} & {*header}) == 1
    assert {chords.workflow(each).root_id for each in header} == {*header}

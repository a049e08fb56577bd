"""What is told of any workflow: a chord that was run is found, and nothing is held for one without reason."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from celeriac.core.workflow import Node, critical_path, shapes

MOMENTS = st.integers(0, 9).map(float)
IDS = st.sampled_from([f"t{number}" for number in range(9)])
NODES = st.dictionaries(
    IDS,
    st.builds(
        Node, st.none() | IDS, st.none() | MOMENTS, st.none() | MOMENTS, st.none() | MOMENTS, st.booleans()
    ),
)


@given(NODES)
def test_a_body_began_after_all_of_a_group_that_returned_and_of_which_one_alone_sent_tasks(
    nodes: dict[str, Node],
) -> None:
    found = shapes(nodes, "t0")

    groups = defaultdict(set)
    for uuid, shape in found.items():
        if shape.group is not None:
            groups[shape.group].add(uuid)
    assert all(len(members) > 1 for members in groups.values())
    for uuid, shape in found.items():
        assert (shape.kind == "body") == (shape.waits_for is not None)
        if shape.waits_for is None:
            continue
        node, members = nodes[uuid], groups[shape.waits_for]
        assert node.parent_id in members
        assert len({nodes[each].parent_id for each in members}) == 1
        for member in members - {node.parent_id}:
            assert nodes[member].has_returned
            assert nodes[member].ended_at <= node.began_at  # type: ignore[operator]
            assert not [each for each in found if nodes[each].parent_id == member]


@given(NODES)
def test_the_critical_path_ends_with_who_ended_last_and_meets_nobody_twice(nodes: dict[str, Node]) -> None:
    path = critical_path(nodes, "t0", shapes(nodes, "t0"))

    assert bool(path) == bool(nodes)
    assert len({*path}) == len(path)
    assert {*path} <= {*nodes}
    ends = [node.ended_at for node in nodes.values() if node.ended_at is not None]
    if ends:
        assert nodes[path[-1]].ended_at == max(ends)


@given(st.lists(st.lists(st.tuples(MOMENTS, MOMENTS), min_size=2, max_size=5), min_size=1, max_size=4))
def test_chords_that_follow_each_other_are_found_and_the_path_is_the_slowest_of_each(
    headers: list[list[tuple[float, float]]],
) -> None:
    """Each header is run as Celery does: members wait and run for some time, and the last sends the body."""
    nodes = {"root": Node(None, 0.0, 0.0, 0.0, True)}
    sender, now, expected = "root", 0.0, ["root"]
    for number, header in enumerate(headers):
        ends = {}
        for place, (waited, ran) in enumerate(header):
            ends[f"{number}.{place}"] = end = now + waited + ran
            nodes[f"{number}.{place}"] = Node(sender, end, end, now + waited, True)
        last = max(ends, key=lambda uuid: (ends[uuid], uuid))
        now = ends[last] + 1
        nodes[f"body{number}"] = Node(last, now, now, now - 0.5, True)
        expected += [last, f"body{number}"]
        sender = f"body{number}"

    found = shapes(nodes, "root")

    bodies = {uuid for uuid, shape in found.items() if shape.kind == "body"}
    assert bodies == {f"body{number}" for number in range(len(headers))}
    assert list(critical_path(nodes, "root", found)) == expected

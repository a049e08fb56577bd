"""How commands report the nodes that answered, and those that did not."""

from typing import TYPE_CHECKING

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.views.cluster import node_names
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.node.inspect import Replies

__all__ = ["outcome_of", "say_who_is_missing"]


def outcome_of(replies: "Replies") -> Code:
    """Return the exit code for the replies of nodes."""
    if not replies and not replies.errors:
        return Code.UNAVAILABLE
    return Code.FAILED if replies.errors or replies.silent or replies.absent else Code.OK


def say_who_is_missing(replies: "Replies") -> None:
    """Write which nodes failed, are silent or absent."""
    for node, error in sorted(replies.errors.items()):
        output.say(f"error on {visible(node)}: {error}")
    if replies.silent:
        names = node_names(replies.silent)
        output.say(f"silent: {names} (sends events, but does not answer; try a longer --timeout)")
    if replies.absent:
        output.say(f"absent: {node_names(replies.absent)} (named, but neither answers nor sends events)")
    if not replies and not replies.errors:
        output.say("no node answered. Is a worker running on this broker? celeriac doctor checks")

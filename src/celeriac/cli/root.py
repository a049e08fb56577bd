"""The whole program, for whoever wants to look at it."""

from celeriac.cli.program import program

__all__ = ["app"]

app = program()

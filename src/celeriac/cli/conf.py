"""``celeriac conf``: the settings in force."""

from celeriac.cli import output
from celeriac.cli.option import AsJson
from celeriac.cli.session import Session
from celeriac.views.text import json_text, visible

__all__ = ["conf"]


def conf(session: Session, *, as_json: AsJson = False) -> None:
    """Show the settings in force, and where each comes from.

    Passwords and other secrets are shown as **. It does not connect to the broker.

    For example:
      celeriac conf
      celeriac conf --config other.toml --json
    """
    settings = session.settings
    values, sources = settings.public(), settings.sources()
    if as_json:
        output.write_json(
            {name: {"value": value, "source": sources[name]} for name, value in values.items()}, indent=2
        )
        return
    rows = [(name, visible(json_text(value)), visible(sources[name])) for name, value in values.items()]
    output.write_table(("SETTING", "VALUE", "SOURCE"), rows, {"default": "dim"})

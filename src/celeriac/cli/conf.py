"""``celeriac conf``: the settings and their sources."""

from typing import NamedTuple

from celeriac.cli import output
from celeriac.cli.format_option import PLAIN, Format, Output
from celeriac.cli.session import Session
from celeriac.views.text import json_text, visible

__all__ = ["conf"]


class SettingRow(NamedTuple):
    """A setting, its value as JSON, and where it comes from."""

    setting: str
    value: str
    source: str


def conf(session: Session, *, out: Output = PLAIN) -> None:
    """Show the settings and the source of each value.

    Passwords and other secrets are shown as **. Does not connect to the broker.

    For example:
      celeriac conf
      celeriac conf --config other.toml --json
    """
    settings = session.settings
    values, sources = settings.public(), settings.sources()
    if out.format is Format.JSON:
        told = {name: {"value": value, "source": sources[name]} for name, value in values.items()}
        output.write_json(told, indent=2)
        return
    rows = [
        SettingRow(name, visible(json_text(value)), visible(sources[name])) for name, value in values.items()
    ]
    out.write_rows(SettingRow, rows, styles={"default": "dim"})

"""Options that several commands share, and the way commands are added to the program."""

import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import celeriac
from celeriac.cli import output
from celeriac.cli.light_command import LightCommand, LightGroup
from celeriac.cli.session import Session, ending

__all__ = ["Common", "Matcher", "Selection", "add_command", "add_common"]

_COMMON = "Common options"
_NODES = "Nodes"
#: A word in brackets, which Rich takes for markup and leaves out: the extra of ``celeriac[demo]``.
_MARKUP = re.compile(r"(\[[a-z#/@][^\[\]]*\])")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        output.write(f"celeriac {celeriac.__version__}")
        raise typer.Exit


@dataclass(frozen=True)
class Common:
    """Options of every command."""

    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            metavar="URL",
            rich_help_panel=_COMMON,
            help="Broker, such as redis://127.0.0.1:6379/0. Default: --app, CELERIAC_BROKER_URL, the "
            "configuration file, CELERY_BROKER_URL.",
        ),
    ] = None
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            "-A",
            metavar="APP",
            rich_help_panel=_COMMON,
            help="Celery app to read the settings from, as celery -A names it: proj, or proj.celery:app.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            rich_help_panel=_COMMON,
            help="TOML file of settings. Default: celeriac.toml or pyproject.toml in this folder.",
        ),
    ] = None
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            rich_help_panel=_COMMON,
            help="Show full traces and debug logging.",
        ),
    ] = False
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            rich_help_panel=_COMMON,
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False


class Matcher(StrEnum):
    """Languages of a pattern."""

    GLOB = "glob"
    PCRE = "pcre"


@dataclass(frozen=True)
class Selection:
    """The nodes that a command is for, and the time to wait for them."""

    destination: Annotated[
        list[str] | None,
        typer.Option(
            "--destination",
            "-d",
            metavar="NODE",
            rich_help_panel=_NODES,
            help="Only this node. Repeatable, or names separated by commas.",
        ),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            rich_help_panel=_NODES,
            metavar="PATTERN",
            help="Only nodes whose names match, such as 'web*'.",
        ),
    ] = None
    matcher: Annotated[
        Matcher, typer.Option("--matcher", rich_help_panel=_NODES, help="Language of --pattern.")
    ] = Matcher.GLOB
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.0,
            metavar="SECONDS",
            rich_help_panel=_NODES,
            help="Time to wait for replies.",
        ),
    ] = 1.0

    @property
    def names(self) -> list[str]:
        """The nodes that were named; none for all."""
        return [name.strip() for each in self.destination or () for name in each.split(",") if name.strip()]

    @property
    def is_everyone(self) -> bool:
        """Whether it is for all nodes there are."""
        return not self.names and not self.pattern

    def options(self) -> dict[str, Any]:
        """Return the arguments by which calls name the nodes."""
        matcher = self.matcher.value if self.pattern else None
        return {"destination": self.names or None, "pattern": self.pattern, "matcher": matcher}


def add_common(app: typer.Typer, **options: Any) -> None:
    """Let a program take the common options before the name of the command too."""

    def take(context: typer.Context, **given: Any) -> None:
        session = context.ensure_object(Session)
        _choose(session, Common(**{each.name: given[each.name] for each in fields(Common)}))

    _sign(take, _parameters(Common))
    texts: dict[str, Any] = {
        name: _escape(value) if isinstance(value, str) else value for name, value in options.items()
    }
    app.callback(**{"cls": LightGroup, **texts})(take)


def add_command(app: typer.Typer, name: str, **options: Any) -> Callable[[Callable[..., int | None]], None]:
    """Add a function to a program as a command.

    The function takes a :class:`Session`, then its own options; an option that is a dataclass
    of this module stands for each of its fields. It returns an exit code, None for 0.
    """

    def add(function: Callable[..., int | None]) -> None:
        own, groups = _expanded(function)

        def run(context: typer.Context, **given: Any) -> None:
            session = context.ensure_object(Session)
            _choose(session, Common(**{each.name: given.pop(each.name) for each in fields(Common)}))
            arguments = {
                name: group(**{each.name: given.pop(each.name) for each in fields(group)})
                for name, group in groups.items()
            }
            output.prepare()
            level = logging.DEBUG if session.is_debug else logging.WARNING
            with ending(session), output.log_to(output.say, level=level):
                code = function(session, **given, **arguments)
            raise typer.Exit(code or 0)

        _sign(run, [*own, *_parameters(Common)])
        app.command(name, cls=LightCommand, help=_as_written(function), **options)(run)

    return add


def _choose(session: Session, common: Common) -> None:
    session.choose(broker=common.broker, app=common.app, config=common.config, is_debug=common.debug)


def _as_written(function: Callable[..., object]) -> str:
    """Return the docstring of a function as help text, in which lists and examples keep their lines."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    text = "\n\n".join(f"\b\n{each}" if "\n  " in each else each.replace("\n", " ") for each in paragraphs)
    return _escape(text)


def _escape(text: str) -> str:
    """Return a help text that Rich shows as it is written."""
    return _MARKUP.sub(r"\\\1", text)


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _sign(function: Callable[..., object], parameters: list[inspect.Parameter]) -> None:
    """Give a function that takes anything a signature, for Typer to read."""
    context = inspect.Parameter("context", _KEYWORD, annotation=typer.Context)
    signature = inspect.Signature([context, *parameters])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}


def _expanded(function: Callable[..., object]) -> tuple[list[inspect.Parameter], dict[str, type[Any]]]:
    """Return the parameters of a command but the first, and which of them stand for several."""
    hints = get_type_hints(function, include_extras=True)
    own: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = hints[parameter.name]
        if is_dataclass(kind) and isinstance(kind, type):
            groups[parameter.name] = kind
            own += _parameters(kind)
        else:
            own.append(parameter.replace(kind=_KEYWORD, annotation=kind))
    return own, groups


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(each.name, _KEYWORD, default=each.default, annotation=hints[each.name])
        for each in fields(group)
    ]

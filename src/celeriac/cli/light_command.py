"""Commands of Typer that start in a third of the time.

Typer loads a validation library to convert the value of any option, also of one that was not given, and
Markdown, a highlighter of code and tracebacks to print a help text. Together that takes longer than most
commands run. Here values that need no conversion skip it, texts that are plainly a number, a path or a
choice are converted on the spot; Typer converts all others as before, and words every error.
"""

import re
import sys
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

__all__ = ["LightCommand", "LightGroup"]

_NUMBER: Final = re.compile(r"-?\d{1,15}(\.\d{1,15})?", re.ASCII)
#: Stands for a value that Typer is to convert.
_OPEN: Final = object()
#: Loaded by Typer's help, and used by none of ours.
_UNUSED: Final = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


class LightCommand(TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        _spare_conversion(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help text."""
        _load_help()
        _hide_types(self.get_params(ctx))
        super().format_help(ctx, formatter)


class LightGroup(TyperGroup):
    """A command with commands of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments up to the name of the command."""
        _spare_conversion(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name, or by that name as Celery writes it: ``enable_events``."""
        found = super().get_command(ctx, cmd_name)
        return found if found is not None else super().get_command(ctx, cmd_name.replace("_", "-"))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help text."""
        _load_help()
        _hide_types(self.get_params(ctx))
        super().format_help(ctx, formatter)


def _spare_conversion(parameters: list[Any]) -> None:
    for each in parameters:
        # A Typer that has none converts without that library.
        if hasattr(each, "type_descriptor"):
            each.process_value = _processor(each, type(each).process_value)


def _processor(parameter: Any, convert: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return what takes the value of an option; ``convert`` is Typer's way."""

    def process(context: Any, value: Any) -> Any:
        taken = _taken(parameter, value)
        if taken is _OPEN or (parameter.required and taken in (None, ())):
            return convert(parameter, context, value)
        return taken if parameter.callback is None else parameter.callback(context, parameter, taken)

    return process


def _taken(parameter: Any, value: Any) -> Any:
    """Return a value as the command takes it, or :data:`_OPEN`."""
    kind = parameter.type_descriptor.annotation
    if parameter.multiple or parameter.nargs == -1:
        is_plain = get_origin(kind) is list and get_args(kind) == (str,) and isinstance(value, list | tuple)
        return () if value is None else tuple(value) if is_plain else _OPEN
    if value is None:
        return None
    return _number(parameter, kind, value) if kind in (int, float) else _single(parameter, kind, value)


def _single(parameter: Any, kind: Any, value: Any) -> Any:
    if not isinstance(kind, type):
        return _OPEN
    if issubclass(kind, Enum) and isinstance(value, str):
        return next((each for each in kind if each.value == value), _OPEN)
    if kind is Path and isinstance(value, str) and not parameter.type_descriptor.parameter_info.exists:
        return Path(value)
    return value if kind in (str, bool, Path) and isinstance(value, kind) else _OPEN


def _number(parameter: Any, kind: type[int] | type[float], value: Any) -> Any:
    if isinstance(value, str) and (found := _NUMBER.fullmatch(value)) and (kind is float or not found[1]):
        value = kind(value)
    if type(value) not in (int, kind):
        return _OPEN
    is_within = (parameter.min is None or value >= parameter.min) and (
        parameter.max is None or value <= parameter.max
    )
    return kind(value) if is_within else _OPEN


def _hide_types(parameters: list[Any]) -> None:
    """Leave the type of a switch out of the help: it takes no value."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""


def _load_help() -> None:
    """Load what prints help texts, without what it loads and does not use for ours."""
    if "typer.rich_utils" in sys.modules:
        return
    absent = [name for name in _UNUSED if name not in sys.modules]
    for name in absent:
        sys.modules[name] = stand_in = ModuleType(name)
        setattr(stand_in, _UNUSED[name], type(_UNUSED[name], (), {}))
    try:
        import_module("typer.rich_utils")
    except ImportError:  # it wants more: Typer loads it by itself
        sys.modules.pop("typer.rich_utils", None)
    finally:
        for name in absent:
            del sys.modules[name]

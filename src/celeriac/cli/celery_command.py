"""``celery -A proj celeriac …``: the commands of celeriac as a command of Celery, on the same app."""

import click

__all__ = ["command"]


@click.command(
    "celeriac",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    help="Monitor this cluster, and keep its history: celeriac --help.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a command of celeriac on the app that Celery has loaded."""
    # Every celery command loads this module; only this one needs a parser of ours.
    from celeriac.cli.program import named_command, program  # noqa: PLC0415
    from celeriac.cli.session import Session  # noqa: PLC0415

    name = None if context.parent is None else context.parent.params.get("app")
    session = Session(app_name=name if isinstance(name, str) else None, loaded=context.obj.app)
    program(named_command(arguments))(args=list(arguments), prog_name="celery celeriac", obj=session)

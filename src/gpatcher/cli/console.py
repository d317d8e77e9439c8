"""How commands print: a console, warnings about the input as notes, Ctrl-C with a way to continue."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gpatcher.errors import InputWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def option(metavar: str | None, help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option of a command; without names it is called as its parameter is."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    return Console(highlight=False)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], title: str | None = None) -> Table:
    """Return a table with bold heads, and its title on the left."""
    from rich.table import Table

    made = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show the warnings about the input as plain lines on stderr, each once."""
    shown: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        default = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, InputWarning):
                default(message, category, *where)
            elif str(message) not in shown:
                shown.add(str(message))
                typer.echo(f"note: {message}", err=True)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """Let Ctrl-C end a command with a line that says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped: {advice}", err=True)
        raise typer.Exit(130) from None


class _PlainHelp:
    """Help without the names of Python types, which typer shows for flags and arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters with nothing in the place of their types."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
        return parameters


class PlainCommand(_PlainHelp, TyperCommand):
    """A command with plain help."""


class PlainGroup(_PlainHelp, TyperGroup):
    """A group of commands with plain help."""

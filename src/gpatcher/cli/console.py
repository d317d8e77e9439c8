"""How commands print: a console, the name of a step, warnings about the input as notes, Ctrl-C with a way on."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gpatcher.errors import InputError, InputWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_QUIET = ContextVar("quiet", default=False)
_MAX_SEED = 2**63 - 2**31  # seeds of further runs are above the first


def check_seed(seed: int) -> int:
    """Return a seed that may be given; for an option, in place of a range that would fill the column of the help."""
    if not 0 <= seed <= _MAX_SEED:
        raise typer.BadParameter(f"it must lie between 0 and {_MAX_SEED}, got {seed}")
    return seed


def option(metavar: str | None, help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option of a command; without names it is called as its parameter is."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


def quietable(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --quiet; what it writes to files and as JSON stays."""

    def run(*, quiet: bool, **values: Any) -> None:
        token = _QUIET.set(quiet)
        try:
            command(**values)
        finally:
            _QUIET.reset(token)

    own = inspect.signature(command, eval_str=True).parameters.values()
    kind = Annotated[bool, option(None, "Print no progress, tables or notes, only errors.", "--quiet")]
    added = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    return Console(highlight=False, markup=False, quiet=_QUIET.get())  # ids and names of classes may hold [/b]


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], title: str | None = None) -> Table:
    """Return a table with bold heads, and its title on the left; in a narrow terminal cells are folded, not cut."""
    from rich.table import Column, Table

    heads = (Column(name, overflow="fold") for name in columns)
    made = Table(*heads, title=title, title_justify="left", header_style="bold")
    for row in rows:
        made.add_row(*row)
    return made


def gibibytes(value: float, name: str) -> int:
    """Return an option in GiB as bytes."""
    if not 0 < value < 2**30:
        raise InputError(f"{name} must be a number of GiB above 0, got {value}")
    return int(value * 2**30)


def check_out(path: Path | None) -> None:
    """Refuse a file in a folder that does not exist, or a path that is not a file, before any work is done."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it or choose another folder for {path.name}")
    if path is not None:
        from gpatcher.io import check_replaceable

        check_replaceable(path)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Show a spinner with the name of a step while it runs; on stderr, and on a terminal alone."""
    from rich.console import Console

    with Console(stderr=True, quiet=_QUIET.get()).status(name):
        yield


def note(message: str) -> None:
    """Print a line that is no error on stderr, above a spinner or bar if there is one."""
    if not _QUIET.get():
        sys.stderr.write(f"note: {message}\n")  # rich stands in for sys.stderr, which typer.echo would pass by


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
                note(str(message))

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

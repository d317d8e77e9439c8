"""The `gpatcher` command: arguments in, calls out; nothing else prints.

One file per group of commands. Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated

import typer

from gpatcher import __version__
from gpatcher.cli import bench, fit, inspect, predict, serve, storage, verify
from gpatcher.cli.console import PlainCommand, PlainGroup, quietable, warnings_as_notes
from gpatcher.errors import InputError, is_out_of_memory

app = typer.Typer(
    name="gpatcher",
    cls=PlainGroup,
    help="Node classification on graphs, whether neighbours agree or not.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; a user's mistake ends with one line and exit code 2, never with a traceback."""
    gc.set_threshold(100_000, 20, 20)  # what imports allocate stays; looking for garbage in it takes half a second
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path or an encoding may not be UTF-8
    try:
        _check_arguments()
        with warnings_as_notes():
            app()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_out_of_memory(error):
            raise
        cause = next(iter(str(error).splitlines()), type(error).__name__)
        advice = "take a smaller graph or model, or raise the limit on memory (ulimit -v)"
        typer.echo(f"error: memory ran out ({cause}); {advice}", err=True)
        sys.exit(2)
    except OSError as error:
        # a path that cannot be read or written
        if error.filename is None:
            raise
        typer.echo(f"error: {error.filename}: {error.strerror}; choose another path or make room there", err=True)
        sys.exit(2)


def _check_arguments() -> None:
    """Refuse arguments that are not UTF-8: Parquet and JSON cannot store such names."""
    for word in sys.argv[1:]:
        try:
            word.encode()
        except UnicodeEncodeError:
            encoding = sys.getfilesystemencoding()
            raise InputError(
                f"the argument {word!a} is not UTF-8 (Python reads arguments as {encoding}); rename the file, or "
                "set PYTHONUTF8=1 or a UTF-8 locale"
            ) from None


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Look at data": (inspect.datasets, inspect.diagnose),
    "Train and predict": (fit.fit, predict.predict, predict.explain, serve.serve, predict.export, inspect.settings),
    "Large graphs": (storage.store, storage.patches, verify.verify),
    "Compare models": (bench.compare, bench.bench, bench.tune, bench.report),
}
for panel, commands in PANELS.items():
    for command in commands:
        shows = command in (inspect.datasets, inspect.settings)  # they only print
        app.command(cls=PlainCommand, rich_help_panel=panel)(command if shows else quietable(command))

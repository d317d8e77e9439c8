"""The `gpatcher` command: arguments in, calls out; nothing else prints.

One file per group of commands. Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from gpatcher.cli import bench, explain, inspect, storage, train

app = typer.Typer(
    name="gpatcher",
    help="Node classification on graphs, whether neighbours agree or not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; a user's mistake ends with one line and exit code 2, never with a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        sys.exit(130)
    except ValueError as error:
        # gpatcher.graph.graph is loaded by then if the error is one of its own; anything else is ours to show in full
        module = sys.modules.get("gpatcher.graph.graph")
        if module is None or not isinstance(error, module.InputError):
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        # a place that cannot be read or written: the user's to mend, and the path tells where
        if error.filename is None:
            raise
        typer.echo(f"error: {error.filename}: {error.strerror}; choose another place or make room there", err=True)
        sys.exit(2)


def _version(value: bool) -> None:
    if value:
        from gpatcher import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


COMMANDS: tuple[Callable[..., None], ...] = (
    inspect.datasets,
    inspect.diagnose,
    storage.store,
    storage.patches,
    train.fit,
    train.predict,
    explain.explain,
    explain.export,
    bench.bench,
    bench.tune,
    bench.report,
)
for command in COMMANDS:
    app.command()(command)

"""Write docs/commands.md, the reference of all commands, from the program itself.

python tools/commands.py
"""

from pathlib import Path

import typer

from gpatcher.cli import app

PATH = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """# Commands

Made by `tools/commands.py` from the program; `gpatcher COMMAND --help` prints the same.
"""


def reference() -> str:
    """Return the page."""
    group = typer.main.get_command(app)
    context = group.make_context("gpatcher", [], resilient_parsing=True)
    parts = [HEAD]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        parameters = [p for p in command.get_params(inner) if p.name != "help"]
        arguments = [p for p in parameters if p.param_type_name == "argument"]
        usage = " ".join(["gpatcher", name, *(p.metavar or p.name.upper() for p in arguments), "[OPTIONS]"])
        parts.append(f"## {name}\n\n{command.help}\n\n```text\n{usage}\n```\n")
        parts.append("| option | meaning | default |\n|---|---|---|")
        parts += [row(p) for p in [*arguments, *(p for p in parameters if p not in arguments)]]
        parts.append("")
    return "\n".join(parts)


def row(parameter: typer.core.TyperOption) -> str:
    """Return the row of one argument or option."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
        name = ", ".join(f"{one}{value}" for one in names)
    default = parameter.default
    shown = "" if default is None or default is False or default == () or callable(default) else f"`{default}`"
    text = (parameter.help or "").replace("|", "\\|")
    return f"| `{name}` | {text} | {shown} |"


if __name__ == "__main__":
    PATH.write_text(reference())

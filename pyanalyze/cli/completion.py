"""`pyanalyze completion`: what the shell needs to complete verbs, options and files."""

from __future__ import annotations

import click

from pyanalyze.cli.standard_streams import out
from pyanalyze.cli.words import Choice

#: Where each shell looks for it.
PLACES = {
    "bash": "~/.local/share/bash-completion/completions/pyanalyze",
    "zsh": "a directory on $fpath, as _pyanalyze",
    "fish": "~/.config/fish/completions/pyanalyze.fish",
}


@click.command("completion")
@click.argument("shell", type=Choice(tuple(PLACES)))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    bash: pyanalyze completion bash > ~/.local/share/bash-completion/completions/pyanalyze

    zsh: pyanalyze completion zsh > _pyanalyze, in a directory on $fpath

    fish: pyanalyze completion fish > ~/.config/fish/completions/pyanalyze.fish
    """
    from click.shell_completion import get_completion_class

    from pyanalyze.cli import cli

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"{shell} is not among {', '.join(PLACES)}")
    # Only the script: the shell itself is not asked for its version, which need not be installed here.
    made = found(cli, {}, "pyanalyze", "_PYANALYZE_COMPLETE")
    out(made.source_template % made.source_vars())

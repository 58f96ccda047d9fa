"""The command `completion`, which prints what makes a shell complete a program's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


def completion_command(program: str) -> click.Command:
    """Return the command for `program`, to be added to its group."""

    @click.command()
    @click.argument("shell", type=click.Choice(SHELLS))
    @click.pass_context
    def completion(context: click.Context, shell: str) -> None:
        kind = get_completion_class(shell)
        assert kind is not None  # noqa: S101 - click knows all of SHELLS
        root = context.find_root().command
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(root, {}, program, variable).source())

    completion.help = f"""Print what makes a shell complete the commands of {program}.

    \b
    bash: {program} completion bash >/etc/bash_completion.d/{program}
    zsh:  {program} completion zsh >/usr/local/share/zsh/site-functions/_{program}
    fish: {program} completion fish >/etc/fish/completions/{program}.fish
    """
    return completion

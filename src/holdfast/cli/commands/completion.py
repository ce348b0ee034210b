"""`holdfast completion`."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script with which a shell completes commands, options and session ids.

    For bash: holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast

    Parameters
    ----------
    shell
        The shell.
    """
    from ..app import make_app

    print(make_app().generate_completion(shell=shell))

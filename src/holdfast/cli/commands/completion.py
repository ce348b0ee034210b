"""`holdfast completion`."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that teaches a shell to complete commands, options and session ids.

    For bash: holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast

    Parameters
    ----------
    shell
        Which one.
    """
    from ..app import make_app

    print(make_app().generate_completion(shell=shell))

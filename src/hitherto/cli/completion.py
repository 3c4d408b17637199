"""``hitherto completion SHELL``: a script that completes commands and options, made of the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hitherto.cli.codes import OK

_BASH: Final = """\
# hitherto completion bash >> ~/.bashrc
_hitherto() {{
    local words current=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}}
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else
        case "$command" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current") $([ -n "$current" ] && compgen -f -- "$current"))
}}
complete -o filenames -F _hitherto hitherto
"""
_ZSH: Final = "# hitherto completion zsh >> ~/.zshrc\nautoload -U +X bashcompinit && bashcompinit\n"


def add(commands: Any, parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command; *parser* makes the whole command line."""
    command = commands.add_parser("completion", help="a completion script for bash, zsh or fish")
    command.add_argument("shell", choices=["bash", "zsh", "fish"])
    command.set_defaults(run=partial(_completion, parser))


def _completion(parser: Callable[[], argparse.ArgumentParser], arguments: argparse.Namespace) -> int:
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](words_of(parser())), end="")
    return OK


def words_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, list[str]]]:
    """Every command with its help and the words that may follow it."""
    found: dict[str, tuple[str, list[str]]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                found[name] = (helps.get(name, ""), _words(command))
    return found


def _words(command: argparse.ArgumentParser) -> list[str]:
    words: list[str] = []
    for action in command._actions:
        if action.help != argparse.SUPPRESS:
            words += [option for option in action.option_strings if option.startswith("--")]
            words += [str(choice) for choice in action.choices or ()]
    return words


def bash(words: dict[str, tuple[str, list[str]]]) -> str:
    """For bash."""
    cases = "\n".join(f'            {name}) words="{" ".join(more)}" ;;' for name, (_, more) in words.items())
    return _BASH.format(commands=" ".join(words), cases=cases)


def zsh(words: dict[str, tuple[str, list[str]]]) -> str:
    """For zsh, which understands bash's."""
    return _ZSH + bash(words).partition("\n")[2]


def fish(words: dict[str, tuple[str, list[str]]]) -> str:
    """For fish."""
    lines = ["# hitherto completion fish > ~/.config/fish/completions/hitherto.fish"]
    for name, (says, more) in words.items():
        said = says.replace("'", "\\'")
        lines.append(f"complete -c hitherto -n __fish_use_subcommand -a {name} -d '{said}'")
        for word in more:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c hitherto -n '__fish_seen_subcommand_from {name}' {what}")
    return "\n".join(lines) + "\n"

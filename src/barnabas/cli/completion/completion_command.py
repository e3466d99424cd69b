"""`barnabas completion bash | zsh | fish`: prints what a shell has to run, to complete `barnabas` at Tab.

The shells ask `barnabas completion words` at each Tab, so that what they offer is what the commands take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.actions import Action, add_no_arguments, run_action
from barnabas.cli.command_line import EXIT_OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

BASH = r"""_barnabas() {
    local line word
    COMPREPLY=()
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        if [ "$word" = ":files" ]; then
            compopt -o filenames 2>/dev/null
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
        else
            COMPREPLY+=("$word")
        fi
    done < <("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _barnabas barnabas
"""
ZSH = r"""#compdef barnabas
_barnabas() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :files ]]; then
            _files
        elif [[ -n $line ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#found )) && _describe barnabas found
}
compdef _barnabas barnabas
"""
FISH = r"""function __barnabas_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (command $words[1] completion words -- $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c barnabas -f -a '(__barnabas_complete)'
"""


def run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "words":
        return print_words([word for word in arguments[1:2] if word != "--"] + list(arguments[2:]))
    return run_action("completion", ACTIONS, arguments)


def print_words(words: Sequence[str]) -> int:
    """One candidate for the last word to a line, with what it is behind a tab."""
    from barnabas.cli.completion.candidates import candidates

    for each in candidates(words):
        print(f"{each.word}\t{each.summary}".rstrip("\t"))
    return EXIT_OK


def printing(script: str) -> Callable[[argparse.Namespace], int]:
    def print_script(_options: argparse.Namespace) -> int:
        print(script, end="")
        return EXIT_OK

    return print_script


def action(shell: str, script: str, how: str) -> Action:
    return Action(f"print what {shell} has to run, to complete at Tab", add_no_arguments, printing(script), how)


ACTIONS = {
    "bash": action("bash", BASH, "in ~/.bashrc:\n  source <(barnabas completion bash)\n"),
    "zsh": action("zsh", ZSH, "in ~/.zshrc, after compinit:\n  source <(barnabas completion zsh)\n"),
    "fish": action("fish", FISH, "once:\n  barnabas completion fish > ~/.config/fish/completions/barnabas.fish\n"),
}

"""How a command says that it failed: one exception, which becomes one line on stderr and an exit code."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # what a shell reports for a command that SIGINT ended


class CommandError(Exception):
    """The command cannot do what it was asked; the message is one line that says why and what to do."""

    exit_code = EXIT_FAILED


class UsageError(CommandError):
    """The command was asked for something that makes no sense, whatever the state of the node."""

    exit_code = EXIT_USAGE

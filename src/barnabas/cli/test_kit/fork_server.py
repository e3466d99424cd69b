"""A process that has everything imported, and forks a `barnabas` command each time that it is told to.

Most of the time in which a node starts, Python loads its modules. Here that happens once: what is forked has them, and
begins with its own work. `barnabas.testing.kit.forks` starts this process and speaks to it, by lines of JSON on a
socket:

    {"run": ["start", "--data-dir", ...]}    with the file descriptors of the log, of a pipe for the exit code and, if
                                             there are to be faults, of the channel for them; answered by {"pid": 4711}
    {"signal": 9, "pid": 4711}               answered by {"sent": true}; false if it has ended
    {"temporary": "/tmp/barnabas-x"}         a folder that is removed at the end, if it is still there; answered by {}

The exit code of a command is written to its pipe when it has ended. When the socket ends, because the process that
started this one is gone, everything that was forked is killed, and temporary folders go with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from barnabas.cli.main import exit_code_of, run_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MESSAGE_BYTES_MAX: Final = 1 << 20
_FDS_MAX: Final = 3

IMPORTED: Final = (
    "barnabas.cli.formatting.format_command",
    "barnabas.cli.start_command",
    "barnabas.testing.kit.fault_control",
)
"""What those who are forked would import themselves."""


class ForkServer:
    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking
        self._exits: dict[int, int] = {}
        """The pipe for the exit code, by process id."""
        self._temporary: set[str] = set()
        self._ended, woken = socket.socketpair()
        for each in (self._ended, woken):
            each.setblocking(False)
        self._woken = woken
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Returns when nobody is left who could ask for anything."""
        poll = select.poll()
        for each in (self._asking, self._ended):
            poll.register(each, select.POLLIN)
        try:
            while True:
                readable = {fd for fd, _ in poll.poll()}
                if self._ended.fileno() in readable:
                    self._ended.recv(MESSAGE_BYTES_MAX)
                    self._reap()
                if self._asking.fileno() in readable and not self._answer():
                    return
        finally:
            for pid in self._exits:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            for folder in self._temporary:
                shutil.rmtree(folder, ignore_errors=True)

    def _answer(self) -> bool:
        line, fds = b"", list[int]()
        while not line.endswith(b"\n"):
            data, more, _, _ = socket.recv_fds(self._asking, MESSAGE_BYTES_MAX, _FDS_MAX)
            if not data:
                return False
            line += data
            fds += more
        asked = json.loads(line)
        self._asking.sendall(json.dumps(self._obey(asked, fds)).encode() + b"\n")
        return True

    def _obey(self, asked: Mapping[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        if "signal" in asked:
            return {"sent": self._send(asked)}
        if "temporary" in asked:
            self._temporary.add(asked["temporary"])
            return {}
        return {"pid": self._fork(asked, fds)}

    def _send(self, asked: Mapping[str, Any]) -> bool:
        """Only to what has not been reaped: a process id that is free again may be anybody's."""
        if asked["pid"] not in self._exits:
            return False
        os.kill(asked["pid"], asked["signal"])
        return True

    def _fork(self, asked: Mapping[str, Any], fds: Sequence[int]) -> int:
        log, exits, *channel = fds
        pid = os.fork()
        if pid == 0:
            self._become(asked["run"], log, exits, channel)
        for fd in (log, *channel):
            os.close(fd)
        self._exits[pid] = exits
        return pid

    def _become(self, words: Sequence[str], log: int, exits: int, channel: Sequence[int]) -> NoReturn:
        """What a child does from here on. It has nothing of this process but its modules."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._asking, self._ended, self._woken):
                each.close()
            for fd in (exits, *self._exits.values()):
                os.close(fd)
            os.dup2(log, sys.stdout.fileno())
            os.dup2(log, sys.stderr.fileno())
            os.close(log)
            code = exit_code_of(lambda: run(words, channel))
            sys.stdout.flush()
            sys.stderr.flush()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                exits = self._exits.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(exits, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(exits)


def run(words: Sequence[str], channel: Sequence[int]) -> int:
    name, *arguments = words
    if name != "start" or not channel:
        return run_command(list(words))
    from barnabas.cli import start_command
    from barnabas.testing.kit.fault_control import FaultControl

    return start_command.run(arguments, outside=FaultControl(socket.socket(fileno=channel[0])).outside())


def load() -> None:
    """Nothing of what is imported is garbage, so it is not looked through for any, neither now nor later."""
    gc.disable()
    for name in IMPORTED:
        import_module(name)
    from barnabas.broker.api.registry import register_all

    register_all()
    gc.freeze()
    gc.enable()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()

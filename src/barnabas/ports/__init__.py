"""The doors to the outside, each behind a small protocol: time, files, chance, the network, threads and processes.

Code that needs one of them takes it as an argument, so that a test can hand in a twin (`barnabas.testing`) whose time
stands still, whose disk runs full or forgets what was never synced, whose network delays and loses, and whose chance
is a seed. With all of the twins together, whole nodes run in one process and one thread, the same way for the same
seed. The real ones are as thin as they can be: mostly the functions of the operating system themselves.
"""

from barnabas.ports.clock import Clock, SystemClock
from barnabas.ports.disk import Disk, SystemDisk
from barnabas.ports.network import Acceptor, Network, Socket, SocketBuffers, SystemNetwork
from barnabas.ports.processes import Processes, SystemProcesses, WorkerLimits
from barnabas.ports.randomness import Random, SystemRandom
from barnabas.ports.threads import LoopThread, SystemThreads, ThreadPool, Threads

__all__ = [
    "Acceptor",
    "Clock",
    "Disk",
    "LoopThread",
    "Network",
    "Processes",
    "Random",
    "Socket",
    "SocketBuffers",
    "SystemClock",
    "SystemDisk",
    "SystemNetwork",
    "SystemProcesses",
    "SystemRandom",
    "SystemThreads",
    "ThreadPool",
    "Threads",
    "WorkerLimits",
]

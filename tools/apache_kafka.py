"""Apache Kafka 4.3.1 as a peer: the oracle of tests marked `kafka`, and the other side of every benchmark.

Maven resolves the jars once, into a cache outside the tree. A `KafkaNode` is one combined broker and controller
with Kafka's default settings, on free loopback ports, and a `KafkaCluster` is several of them:

    if (reason := apache_kafka.missing()) is None:
        with apache_kafka.KafkaNode() as node:
            print(node.bootstrap)
        with apache_kafka.KafkaCluster(nodes=3) as cluster:
            cluster.kill(2)
"""

from __future__ import annotations

import functools
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.testing.several_nodes import HOST, SeveralNodes, reserved_port
from tools import maven

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

VERSION = "4.3.1"
JAVA_VERSION_MIN = 17

SERVER_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What Kafka's own start script passes: benchmarks compare with a broker as people run it."""

TOOL_FLAGS = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Tools live for a second, and an oracle for some more: start-up is what they spend. Without the compiler that makes
long-running programs fast, a node takes three fifths of the processor time until it answers."""

ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.kafka", "kafka-shell", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
STOP_WITHOUT_QUORUM_SECONDS_MAX = 5.0
"""How long brokers may take to end once so many nodes have ended that the others are no quorum: nobody is left to let
them leave, and they would wait five minutes for that."""
POLL_SECONDS = 0.01
LOG_TAIL_CHARS = 4_000

_LOG4J_FILE = Path(__file__).with_name("kafka_log4j2.properties")


class KafkaUnavailableError(RuntimeError):
    """Apache Kafka cannot be run here; the message says what is missing."""


class KafkaFailedError(RuntimeError):
    """A Kafka process did not do what it was started for; the message ends with what it printed."""


@functools.cache
def missing() -> str | None:
    """What is missing to run Apache Kafka here, in one line, or None. Looked up once: it may download the jars."""
    return find_missing()


def find_missing() -> str | None:
    if (reason := _java_missing()) is not None:
        return reason
    try:
        ensure_jars()
    except KafkaUnavailableError as error:
        return str(error)
    return None


def ensure_jars() -> Path:
    """The folder of Kafka's jars, resolved by Maven on first use."""
    try:
        return maven.ensure_jars(f"kafka-{VERSION}", ARTIFACTS)
    except maven.MavenError as error:
        raise KafkaUnavailableError(f"Apache Kafka {VERSION}: {error}") from error


def run_tool(
    main_class: str,
    *args: str,
    input: str | None = None,  # noqa: A002 - as subprocess.run calls it
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command-line tools to its end. The caller judges the return code and the output."""
    return subprocess.run(
        [*java_command(), main_class, *args],
        input=input,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )


def dump_log(*files: Path | str, cluster_metadata: bool = False) -> str:
    """What Kafka's DumpLogSegments prints of log, index, snapshot or checkpoint files, records included."""
    decoder = "--cluster-metadata-decoder" if cluster_metadata else "--print-data-log"
    tool = "org.apache.kafka.tools.DumpLogSegments"
    done = run_tool(tool, decoder, "--deep-iteration", "--files", ",".join(map(str, files)))
    if done.returncode != 0:
        raise KafkaFailedError(f"{tool} returned {done.returncode} on {files}:\n{done.stdout}{done.stderr}")
    return done.stdout


class KafkaNode:
    """One Apache Kafka process that is broker and controller, for as long as the `with` block lasts.

    An empty or absent folder is formatted; a folder with a `meta.properties`, of Kafka or of Barnabas, is opened as
    it is, under its own node id. Without a folder the node gets a temporary one, removed at the end. The ports are
    kept over `stop` or `kill` and `start`, so that clients find the node again.
    With a `config_file`, that properties file alone says who the node is and where it listens; `data_dir` must agree
    with it. Classes that the properties name, and that are not Kafka's, are found on the `classpath`.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        flags: Sequence[str] = TOOL_FLAGS,
        config_file: Path | None = None,
        classpath: Sequence[Path] = (),
    ) -> None:
        self.flags = flags
        self._classpath = classpath
        self._config_file = config_file
        self._work_dir = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.data_dir = self._work_dir / "data" if data_dir is None else Path(data_dir)
        self.host = HOST
        self._reservations = [] if config_file is not None else [reserved_port(), reserved_port()]
        reserved: list[int] = [each.getsockname()[1] for each in self._reservations]
        self.port, self.controller_port = reserved if config_file is None else _ports_in(config_file)
        self.properties = dict(properties or {})
        """Added to those of a node on its own, at its next start."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the node printed since it was made: warnings and errors only."""
        file = self._work_dir / "kafka.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> Self:
        """Formats the folder if it must, starts the process and returns once it answers a Metadata request."""
        self.launch()
        self.wait_until_ready()
        return self

    def format_if_empty(self, cluster_id: str | None = None, voters: Sequence[str] = ("--standalone",)) -> None:
        """Writes the folder's identity and first metadata where there is none yet."""
        if (self.data_dir / "meta.properties").exists():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        words = ("format", "-t", cluster_id or _random_id(), "-c", str(self._write_properties()), *voters)
        done = run_tool("kafka.tools.StorageTool", *words)
        if done.returncode != 0:
            raise KafkaFailedError(f"kafka.tools.StorageTool could not format:\n{done.stdout}{done.stderr}")

    def launch(self) -> None:
        """Starts the process without waiting, for a caller that measures the start itself."""
        if self._process is not None:
            raise KafkaFailedError(f"Kafka on {self.data_dir} already runs as process {self._process.pid}")
        self.format_if_empty()
        properties_file = self._write_properties()
        with (self._work_dir / "kafka.log").open("ab") as log:
            # A session of its own: Ctrl-C reaches the caller, which then stops the node in order.
            self._process = subprocess.Popen(
                [*java_command(self.flags, self._classpath), "kafka.Kafka", str(properties_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self, *, brokers_min: int = 1) -> None:
        """Returns once the node answers a Metadata request and knows so many brokers; one that does not is killed."""
        deadline = time.monotonic() + START_SECONDS_MAX
        try:
            while not answers_metadata(HOST, self.port, brokers_min=brokers_min):
                if self._running().poll() is not None:
                    raise KafkaFailedError(
                        f"Kafka ended with {self._running().returncode} at start:\n{self._log_tail()}"
                    )
                if time.monotonic() > deadline:
                    raise KafkaFailedError(f"Kafka did not answer in {START_SECONDS_MAX:.0f} s:\n{self._log_tail()}")
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Clean stop, as by SIGTERM; a node that does not end in time is killed and reported."""
        self.begin_stop()
        self.wait_until_stopped()

    def begin_stop(self) -> None:
        """Asks the node to stop without waiting: one of several may need the others for it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(STOP_SECONDS_MAX)
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise KafkaFailedError(
                    f"Kafka did not stop in {STOP_SECONDS_MAX:.0f} s:\n{self._log_tail()}"
                ) from error
            raise

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stops the node and removes what it made for itself; a folder that the caller gave stays."""
        try:
            self.stop()
        finally:
            for reservation in self._reservations:
                reservation.close()
            shutil.rmtree(self._work_dir)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise KafkaFailedError(f"Kafka on {self.data_dir} is not running")
        return self._process

    def _write_properties(self) -> Path:
        if self._config_file is not None:
            return self._config_file
        properties = {
            "process.roles": "broker,controller",
            "node.id": _node_id(self.data_dir),
            "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self.properties,
        }
        file = self._work_dir / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return file

    def _log_tail(self) -> str:
        return self.log[-LOG_TAIL_CHARS:]


def _ports_in(config_file: Path) -> tuple[int, int]:
    """Of the first listener for clients, and of the one for controllers, which comes last."""
    listeners = re.search(r"^listeners=(.*)$", config_file.read_text(), re.MULTILINE)
    if listeners is None:
        raise KafkaFailedError(f"{config_file} has no listeners")
    ports = [int(port) for port in re.findall(r":(\d+)(?:,|$)", listeners[1])]
    return ports[0], ports[-1]


class KafkaCluster(SeveralNodes[KafkaNode]):
    """Nodes with the ids 1 … `nodes`, each an Apache Kafka process that is broker and controller, for as long as the
    `with` block lasts.

    All are voters, which Kafka's own tool formats into the log. Internal topics have three replicas where there are
    nodes enough, two of which have to be in sync. `properties` are those of all nodes, `properties_of` those of single
    ones, by id. Without a folder the nodes get temporary ones, removed at the end; in a folder that the caller gave,
    which must be new, each has one of its own (`node-2`). Ports are kept over `stop` or `kill` and `start`.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        nodes: int = 3,
        properties: Mapping[str, str] | None = None,
        properties_of: Mapping[int, Mapping[str, str]] | None = None,
        flags: Sequence[str] = TOOL_FLAGS,
    ) -> None:
        super().__init__()
        self.cluster_id = _random_id()
        for node_id in range(1, nodes + 1):
            data_dir = None if folder is None else Path(folder) / f"node-{node_id}"
            self.nodes[node_id] = KafkaNode(data_dir, flags=flags)
        replicas, in_sync = str(min(3, nodes)), "2" if nodes >= 3 else "1"
        for node_id, node in self.nodes.items():
            node.properties = {
                "node.id": str(node_id),
                "controller.quorum.bootstrap.servers": self.bootstrap_controllers,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": in_sync,
                "share.coordinator.state.topic.replication.factor": replicas,
                "share.coordinator.state.topic.min.isr": in_sync,
                **(properties or {}),
                **(properties_of or {}).get(node_id, {}),
            }

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`: all nodes, whether they run or not."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def bootstrap_controllers(self) -> str:
        """What an admin client takes as `bootstrap.controllers`."""
        return ",".join(f"{HOST}:{node.controller_port}" for node in self.nodes.values())

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the nodes that run, by node id."""
        return {node_id: self.nodes[node_id].pid for node_id in self.running}

    def format(self) -> None:
        """Formats the folders that are new, all for the same quorum."""
        directories = {node_id: _random_id() for node_id in self.nodes}
        voters = ",".join(
            f"{node_id}@{HOST}:{node.controller_port}:{directories[node_id]}" for node_id, node in self.nodes.items()
        )
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(
                threads.map(
                    lambda node: node.format_if_empty(self.cluster_id, ("--initial-controllers", voters)),
                    self.nodes.values(),
                )
            )

    def launch(self) -> None:
        """Starts all nodes that do not run, without waiting, for a caller that measures the start itself."""
        self.format()
        for node in self.nodes.values():
            if not node.is_running:
                node.kill()  # one that has ended by itself has not been waited for
                node.launch()

    def start(self) -> Self:
        """Formats the folders that are new, starts all nodes that do not run, and returns once each knows all."""
        self.launch()
        for node in self.nodes.values():
            node.wait_until_ready(brokers_min=len(self.nodes))
        return self

    def start_node(self, node_id: int) -> KafkaNode:
        return self.nodes[node_id].start()

    def stop(self) -> None:
        """A clean stop of all nodes that run, at once. Who is left without a quorum is killed after a while: Kafka's
        brokers wait for the controller's leave to go."""
        for node_id in self.running:
            self.nodes[node_id].begin_stop()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        has_quorum = True
        while self.running and time.monotonic() < deadline:
            if has_quorum and 2 * len(self.running) <= len(self.nodes):
                has_quorum = False
                deadline = time.monotonic() + STOP_WITHOUT_QUORUM_SECONDS_MAX
            time.sleep(POLL_SECONDS)
        if has_quorum and self.running:
            self.kill()
            raise KafkaFailedError(f"of Kafka's cluster, {self.running} did not stop in {STOP_SECONDS_MAX:.0f} s")
        self.kill()

    def log_text(self, node_id: int) -> str:
        """What a node printed since it was made: warnings and errors only."""
        return self.nodes[node_id].log

    def close(self) -> None:
        """Ends what still runs and removes what the nodes made for themselves; a folder that the caller gave stays."""
        self.kill()
        for node in self.nodes.values():
            node.close()


def answers_metadata(host: str, port: int, timeout: float = 5.0, *, brokers_min: int = 1) -> bool:
    """Whether a broker there answers Metadata v1 and knows so many brokers, of which it is one: it is ready for
    clients."""
    client_id = b"ready"
    body = struct.pack(">hhih", 3, 1, 1, len(client_id)) + client_id + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as answer:
                head = answer.read(12)
    except OSError:
        return False
    return len(head) == 12 and struct.unpack(">iii", head)[1:] >= (1, brokers_min)


def java_command(flags: Sequence[str] = TOOL_FLAGS, classpath: Iterable[Path | str] = ()) -> list[str]:
    """The command that runs a class of Kafka's jars, or of what is put before them, once its name is added."""
    if (reason := missing()) is not None:
        raise KafkaUnavailableError(reason)
    places = ":".join([*map(str, classpath), f"{ensure_jars()}/*"])
    return ["java", *flags, f"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}", "-cp", places]


def _java_missing() -> str | None:
    try:
        shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"Apache Kafka needs Java {JAVA_VERSION_MIN} or newer: `java -version` failed: {error}"
    found = re.search(r'version "(\d+)', shown)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        return f"Apache Kafka needs Java {JAVA_VERSION_MIN} or newer, found: {shown.splitlines()[0]}"
    return None


def _node_id(data_dir: Path) -> str:
    """The id in an existing folder, as Kafka refuses to open it under another."""
    meta = data_dir / "meta.properties"
    if not meta.exists():
        return "1"
    found = re.search(r"^node\.id=(\d+)$", meta.read_text(), re.MULTILINE)
    if found is None:
        raise KafkaFailedError(f"{meta} has no node.id")
    return found[1]


def _random_id() -> str:
    """A cluster id in Kafka's form. A leading dash would read as an option on a command line."""
    while (text := urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")).startswith("-"):
        pass
    return text

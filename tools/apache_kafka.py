"""Apache Kafka 4.3.1 as a peer: the oracle of tests marked `kafka`, and the other side of every benchmark.

Maven resolves the jars once, into a cache outside the tree. A `KafkaNode` is one combined broker and controller
with Kafka's default settings, on free loopback ports:

    if (reason := apache_kafka.missing()) is None:
        with apache_kafka.KafkaNode() as node:
            print(node.bootstrap)
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
from pathlib import Path
from typing import TYPE_CHECKING

from tools import maven

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

VERSION = "4.3.1"
JAVA_VERSION_MIN = 17
HOST = "127.0.0.1"

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
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        flags: Sequence[str] = TOOL_FLAGS,
    ) -> None:
        self.flags = flags
        self._work_dir = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.data_dir = self._work_dir / "data" if data_dir is None else Path(data_dir)
        self._reservations = [_reserved_port(), _reserved_port()]
        self.port, self.controller_port = (each.getsockname()[1] for each in self._reservations)
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
    def log(self) -> str:
        """What the node printed since it was made: warnings and errors only."""
        file = self._work_dir / "kafka.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> Self:
        """Formats the folder if it must, starts the process and returns once it answers a Metadata request."""
        self.launch()
        self.wait_until_ready()
        return self

    def format_if_empty(self) -> None:
        """Writes the folder's identity and first metadata where there is none yet."""
        if (self.data_dir / "meta.properties").exists():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        properties_file = str(self._write_properties())
        done = run_tool("kafka.tools.StorageTool", "format", "--standalone", "-t", _random_id(), "-c", properties_file)
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
                [*java_command(self.flags), "kafka.Kafka", str(properties_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        try:
            while not answers_metadata(HOST, self.port):
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
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
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


def answers_metadata(host: str, port: int, timeout: float = 5.0) -> bool:
    """Whether a broker there answers Metadata v1 and knows at least one broker, itself: it is ready for clients."""
    client_id = b"ready"
    body = struct.pack(">hhih", 3, 1, 1, len(client_id)) + client_id + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as answer:
                head = answer.read(12)
    except OSError:
        return False
    return len(head) == 12 and struct.unpack(">iii", head)[1:] >= (1, 1)


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


def _reserved_port() -> socket.socket:
    """A socket bound to a free port, never listening: Linux lets Kafka listen there, and gives it to no one else."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, 0))
    return reservation

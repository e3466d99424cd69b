"""The toolchains of other languages: found on this machine, and given the client libraries that the checks use.

What is downloaded or built goes into a cache outside the tree. A toolchain or a registry that is not there is a
`MissingError`, and the checks that need it are not run; a program of ours that does not compile is a `BuildError`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools import apache_kafka, cache, maven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

HERE = Path(__file__).parent
GO_VERSION_MIN = (1, 24)
NODE_VERSION_MIN = (18, 0)
INSTALL_SECONDS_MAX = 600.0

STREAMS_ARTIFACTS = (("org.apache.kafka", "kafka-streams", apache_kafka.VERSION),)


class MissingError(RuntimeError):
    """Something that this machine lacks; the message says in one line what the checks need."""


class BuildError(RuntimeError):
    """A program of ours that does not compile; the message is what the compiler said."""


class Launch(NamedTuple):
    """How to start a program: the command, to which arguments are added, and what its environment needs."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}


class Toolchain(NamedTuple):
    """What some checks need: `prepare` installs and builds it, and is quick once that was done."""

    name: str
    checks: str
    prepare: Callable[[], Launch]


def java() -> Launch:
    """Scenarios of the Java client. Kafka's own tools need no more than this, and less."""
    _need_kafka("the Java client and Kafka's tools")
    classes = _compiled("java", f"{apache_kafka.ensure_jars()}/*")
    return Launch((*apache_kafka.java_command(classpath=[classes]), "interop.Main"))


def streams() -> Launch:
    """A Kafka Streams application, whose jars are many megabytes that nothing else needs."""
    _need_kafka("Kafka Streams")
    try:
        jars = maven.ensure_jars(f"kafka-streams-{apache_kafka.VERSION}", STREAMS_ARTIFACTS)
    except maven.MavenError as error:
        raise MissingError(f"needs Kafka Streams: {error}") from error
    classes = _compiled("streams", f"{jars}/*")
    return Launch((*apache_kafka.java_command(classpath=[classes, f"{jars}/*"]), "interop.WordCount"))


def go() -> Launch:
    """Scenarios of franz-go, linked into one program."""
    needs = f"needs Go {_text(GO_VERSION_MIN)} or newer"
    _need_version(["go", "version"], GO_VERSION_MIN, needs)
    # A newer toolchain is for the person to install, not for Go to fetch on its own.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    sources = [*sorted((HERE / "go").glob("*.go")), HERE / "go" / "go.mod", HERE / "go" / "go.sum"]

    def build(folder: Path) -> None:
        _install(["go", "mod", "download"], "needs the franz-go modules", cwd=HERE / "go", environment=environment)
        _build(["go", "build", "-o", str(folder / "interop"), "."], cwd=HERE / "go", environment=environment)

    return Launch((str(_made_of(sources, "go", build) / "interop"),))


def node() -> Launch:
    """Scenarios of KafkaJS."""
    needs = f"needs Node.js {_text(NODE_VERSION_MIN)} or newer"
    _need_version(["node", "--version"], NODE_VERSION_MIN, needs)
    package = HERE / "node" / "package.json"

    def install(folder: Path) -> None:
        if shutil.which("npm") is None:
            raise MissingError("needs npm, which is not on PATH, to install KafkaJS")
        shutil.copy(package, folder)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder)]
        _install(command, "needs the KafkaJS package", cwd=folder, environment=os.environ)

    modules = _made_of([package], "node", install) / "node_modules"
    return Launch(("node", str(HERE / "node" / "main.js")), {"NODE_PATH": str(modules)})


def prometheus() -> Launch:
    """Debian's, which scrapes nodes and evaluates our rules."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        raise MissingError(f"needs {' and '.join(missing)}, which Debian's package prometheus has")
    return Launch(("prometheus",))


JAVA = Toolchain("Java", "the Java client and Kafka's tools", java)
STREAMS = Toolchain("Kafka Streams", "a Kafka Streams application", streams)
GO = Toolchain("Go", "franz-go", go)
NODE = Toolchain("Node.js", "KafkaJS", node)
PROMETHEUS = Toolchain("Prometheus", "alert rules and dashboards", prometheus)
TOOLCHAINS = (JAVA, STREAMS, GO, NODE, PROMETHEUS)


@functools.cache
def prepared(toolchain: Toolchain) -> Launch | MissingError:
    """How to start a toolchain's program, or what is missing: looked for once, as that may take minutes."""
    try:
        return toolchain.prepare()
    except MissingError as error:
        return error


def _need_kafka(what: str) -> None:
    if (reason := apache_kafka.missing()) is not None:
        raise MissingError(f"needs Java {apache_kafka.JAVA_VERSION_MIN} or newer, and Maven, for {what}: {reason}")
    if shutil.which("javac") is None:
        raise MissingError(f"needs a JDK: there is Java, but no javac on PATH to compile {what}'s programs")


def _compiled(name: str, classpath: str) -> Path:
    """The classes of the sources in a folder of this package."""
    sources = sorted((HERE / name).glob("*.java"))
    release = ["--release", str(apache_kafka.JAVA_VERSION_MIN), "-Xlint:all,-processing,-path", "-Werror"]

    def build(folder: Path) -> None:
        _build(["javac", *release, "-proc:none", "-cp", classpath, "-d", str(folder), *map(str, sources)], cwd=HERE)

    return _made_of(sources, name, build)


def _made_of(sources: Iterable[Path], name: str, make: Callable[[Path], None]) -> Path:
    """A folder in the cache that is made anew whenever the sources change."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
    return cache.made_once(cache.home() / "interop" / f"{name}-{digest[:16]}", make)


def _need_version(command: list[str], version_min: tuple[int, int], needs: str) -> None:
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(f"{needs}: `{' '.join(command)}` failed: {error}") from error
    found = re.search(r"(\d+)\.(\d+)", shown)
    if found is None or (int(found[1]), int(found[2])) < version_min:
        raise MissingError(f"{needs}, found: {shown.strip()}")


def _install(command: list[str], needs: str, *, cwd: Path, environment: Mapping[str, str]) -> None:
    try:
        _run(command, cwd, environment)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        first = next((line for line in said.splitlines() if re.search("(?i)error|fail|cannot", line)), str(error))
        raise MissingError(f"{needs}: `{' '.join(command[:3])}` failed: {first.strip()}") from error


def _build(command: list[str], *, cwd: Path, environment: Mapping[str, str] = os.environ) -> None:
    try:
        _run(command, cwd, environment)
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{command[0]} failed:\n{error.stdout}{error.stderr}") from error


def _run(command: list[str], cwd: Path, environment: Mapping[str, str]) -> None:
    subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS_MAX
    )


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))

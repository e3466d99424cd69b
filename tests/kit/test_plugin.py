"""The pytest plugin, in a run of pytest as somebody else would start it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100.0


def run_pytest(folder: Path, registered: Path, *words: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    path = os.pathsep.join([str(registered), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


TESTS = """
    import os
    import pytest

    @pytest.mark.parametrize("number", range(6))
    def test_topics_are_new(number, barnabas_broker, barnabas_topic):
        with open(os.environ["SEEN"], "a") as seen:
            seen.write(f"{os.getpid()} {barnabas_broker.pid} {barnabas_topic}\\n")
        barnabas_broker.produce(barnabas_topic, [str(number)])
        barnabas_broker.expect(barnabas_topic, [str(number)])
"""


def test_tests_in_parallel_have_topics_and_brokers_of_their_own(
    tmp_path: Path, registered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    folder = tmp_path / "tests"
    folder.mkdir()
    done = run_pytest(folder, registered, "-n", "2", test_topics=TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert len({topic for _, _, topic in seen}) == 6
    assert all(topic.startswith("test_topics_are_new-") for _, _, topic in seen)
    workers, brokers = {worker for worker, _, _ in seen}, {broker for _, broker, _ in seen}
    assert len(workers) == len(brokers) == 2
    assert len({(worker, broker) for worker, broker, _ in seen}) == 2
    assert not any(Path(f"/proc/{broker}").exists() for broker in brokers)


def test_what_a_test_does_to_the_broker_of_the_session_ends_with_the_test(tmp_path: Path, registered: Path) -> None:
    done = run_pytest(
        tmp_path,
        registered,
        test_order="""
        def test_1_fills_the_disk(barnabas_broker):
            barnabas_broker.faults.fill_disk()

        def test_2_finds_space(barnabas_broker, barnabas_topic):
            barnabas_broker.produce(barnabas_topic, ["x"])
            barnabas_broker.pause()

        def test_3_finds_it_awake(barnabas_broker, barnabas_topic):
            barnabas_broker.produce(barnabas_topic, ["x"])
            barnabas_broker.kill()

        def test_4_finds_it_running(barnabas_broker, barnabas_topic):
            barnabas_broker.produce(barnabas_topic, ["x"])

        def test_5_has_one_of_its_own(barnabas_own_broker, barnabas_session_broker):
            assert barnabas_own_broker.port != barnabas_session_broker.port
            topic = barnabas_own_broker.create_topic()
            barnabas_own_broker.produce(topic, ["x"])
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_settings_are_overridden_in_a_conftest_and_a_cluster_is_there_too(tmp_path: Path, registered: Path) -> None:
    done = run_pytest(
        tmp_path,
        registered,
        conftest="""
        import pytest

        @pytest.fixture(scope="session")
        def barnabas_settings():
            return {"num.partitions": "3"}
        """,
        test_settings="""
        from confluent_kafka.admin import AdminClient

        def test_settings(barnabas_broker):
            admin = AdminClient({"bootstrap.servers": barnabas_broker.bootstrap})
            barnabas_broker.produce("made-on-first-use", ["x"])
            assert len(admin.list_topics("made-on-first-use").topics["made-on-first-use"].partitions) == 3

        def test_cluster(barnabas_cluster, barnabas_cluster_topic):
            barnabas_cluster.kill(3)
            barnabas_cluster.produce(barnabas_cluster_topic, ["x"], within_s=30)
            barnabas_cluster.expect(barnabas_cluster_topic, ["x"])
            barnabas_cluster.kill()

        def test_cluster_is_whole_again(barnabas_cluster):
            assert barnabas_cluster.running == [1, 2, 3]
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_test_that_fails_shows_the_log_of_its_broker(tmp_path: Path, registered: Path) -> None:
    done = run_pytest(
        tmp_path,
        registered,
        test_failing="""
        def test_that_fails(barnabas_broker):
            assert False
        """,
    )
    assert done.returncode == 1
    assert re.search(r"-+ log of 127\.0\.0\.1:\d+ -+\n(.*\n)*barnabas ready: PLAINTEXT", done.stdout), done.stdout


def test_a_run_that_does_not_use_it_does_not_pay_for_it(tmp_path: Path, registered: Path) -> None:
    done = run_pytest(
        tmp_path,
        registered,
        test_without="""
        import sys

        def test_without():
            assert "barnabas.testing.pytest_plugin" in sys.modules
            assert "barnabas.testing.kit" not in sys.modules
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr

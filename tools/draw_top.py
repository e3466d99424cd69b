"""Makes the picture of `barnabas top` in the docs: `python -m tools.draw_top`.

Three nodes are worked with for some seconds, by producers, by a group that keeps up and by one that does not. What the
command would then show at a terminal is written as SVG. Figures are those of the machine that it runs on.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from barnabas.cli.top.figures import figures
from barnabas.cli.top.samples import take_all
from barnabas.cli.top.screen import History, picture
from barnabas.testing.cluster_processes import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

FILE: Final = Path(__file__).parents[1] / "docs" / "top.svg"
ADDRESSES: Final = [("127.0.0.1", port) for port in (9308, 9309, 9310)]
WIDTH, HEIGHT = 144, 32
LOOKS: Final = 25
INTERVAL_S: Final = 0.8
TURN_S: Final = 0.02
RECORDS_PER_TURN: Final = {"orders": 8, "clicks": 30, "payments": 2}
SLOW_RECORDS_PER_TURN: Final = 20
FONT_FACES: Final = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""They would be fetched from elsewhere."""


def main() -> None:
    settings = {
        number: {"barnabas.metrics.listener": f"{host}:{port}"} for number, (host, port) in enumerate(ADDRESSES, 1)
    }
    with (
        tempfile.TemporaryDirectory(prefix="top-") as folder,
        Cluster(folder, nodes=3, settings_of=settings) as cluster,
    ):
        make_topics(cluster.bootstrap)
        FILE.write_text(drawn_while(lambda done: work(cluster.bootstrap, done)))


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, 6, 3) for topic in RECORDS_PER_TURN])
    for each in made.values():
        each.result(30)


def work(bootstrap: str, done: threading.Event) -> None:
    """Until it is `done`: writes, and reads with two groups."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    groups = [member(bootstrap, "billing", ["orders", "payments"]), member(bootstrap, "reports", ["clicks"])]
    turn = 0
    while not done.wait(TURN_S):
        turn += 1
        swell = 1 + (turn // 25) % 5
        for topic, count in RECORDS_PER_TURN.items():
            for _ in range(count * swell):
                producer.produce(topic, b"x" * 300)
        producer.poll(0)
        for consumer, limit in zip(groups, (500, SLOW_RECORDS_PER_TURN), strict=True):
            consumer.consume(limit, 0)
    for consumer in groups:
        consumer.close()
    producer.flush(30)


def member(bootstrap: str, group: str, topics: list[str]) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"auto.commit.interval.ms": 500})
    consumer.subscribe(topics)
    return consumer


def drawn_while(working: Callable[[threading.Event], None]) -> str:
    done = threading.Event()
    worker = threading.Thread(target=working, args=(done,))
    worker.start()
    try:
        history = History()
        before, _ = take_all(ADDRESSES)
        for _ in range(LOOKS):
            time.sleep(INTERVAL_S)
            now, failures = take_all(ADDRESSES)
            found = figures(before, now, failures)
            history.points.append(found.throughput)
            before = now
    finally:
        done.set()
        worker.join()
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=StringIO(), force_terminal=True)
    console.print(picture(found, history, "barnabas top", width=WIDTH, height=HEIGHT))
    return console.export_svg(title="barnabas top", code_format=FONT_FACES.sub("", CONSOLE_SVG_FORMAT), unique_id="top")


if __name__ == "__main__":
    main()

"""What settings can belong to."""

from enum import IntEnum


class ResourceType(IntEnum):
    """What a configuration belongs to, with the codes of the protocol and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

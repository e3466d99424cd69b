"""What requests to groups may say: mostly what makes sense, and now and then what does not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from barnabas.protocol.uuids import ZERO_UUID
from tests.unit.groups.consumer_requests import topic_id
from tests.unit.groups.conversion.mixed_driver import assignment, subscription

INT32 = st.sampled_from([-(1 << 31), -2, -1, 0, 1, 2, (1 << 31) - 1])
INT64 = st.sampled_from([-(1 << 63), -2, -1, 0, 1, (1 << 63) - 1])
TEXT = st.sampled_from(["", " ", "\0", "é𝄞", "x" * 300])


def mostly(usual: st.SearchStrategy[Any], strange: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A request in which everything is strange is refused for the first thing: one or two have to get through."""
    return st.integers(0, 9).flatmap(lambda die: usual if die else strange)


group_ids = mostly(st.just("g"), st.just("h"))
member_ids = mostly(st.sampled_from(["a", "b", "c"]), st.sampled_from(["", " "]))
instance_ids = mostly(st.none(), st.sampled_from(["i", "j", ""]))
topic_names = mostly(st.sampled_from(["foo", "bar"]), st.sampled_from(["gone", ""]))
topic_ids = st.sampled_from([topic_id("foo 0"), topic_id("foo 1"), topic_id("bar 0"), topic_id("gone 0"), ZERO_UUID])
partitions = st.lists(mostly(st.integers(0, 3), INT32), max_size=4)
owned = st.dictionaries(topic_names, partitions, max_size=2)
listed = st.lists(st.tuples(topic_ids, partitions), max_size=3)
regexes = mostly(st.none(), st.sampled_from(["", "fo.*", "bar|gone", "(", "a{1001}", "\\C", "\0", ".*" * 400]))
assignors = mostly(st.none(), st.sampled_from(["uniform", "range", "none", ""]))
timeouts = mostly(st.sampled_from([6_000, 45_000]), INT32)
garbage = st.sampled_from([b"", b"\0", b"\0\1\0\0", b"\xff\xff\0\0\0\0", b"\0\3" + b"\xff" * 8])
names = st.lists(topic_names, min_size=1, max_size=2)
subscriptions = mostly(st.builds(subscription, names, owned, st.sampled_from([0, 1, 3])), garbage)
protocols = st.lists(st.tuples(st.sampled_from(["range", "sticky"]), subscriptions), min_size=1, max_size=3)
assignments = mostly(st.builds(assignment, owned), st.one_of(st.builds(assignment, owned, st.just(b"mine")), garbage))

"""How large the receive buffers of the other nodes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.membership.directory import PeerBuffers
from jsonbus.core.wire.encode import encode_list, encode_presence
from jsonbus.core.wire.frames import Digest, ListFrame, PresenceFrame
from tests.core.generated import unhurried
from tests.core.link import Link, digest_of, forge, is_share

HERE = frozenset({"10.0.0.1", "10.0.0.2"})


def test_the_smallest_on_the_hosts_asked_for_is_told() -> None:
    buffers = PeerBuffers()
    assert buffers.smallest(HERE) is None
    buffers.note("a", "10.0.0.1", 3000)
    buffers.note("b", "10.0.0.2", 2000)
    buffers.note("c", "10.0.0.3", 1000)
    assert buffers.smallest(HERE) == 2000
    assert buffers.smallest({"10.0.0.3"}) == 1000
    assert buffers.smallest(()) is None


def test_a_node_that_left_changed_or_moved_no_longer_counts() -> None:
    buffers = PeerBuffers()
    for node in "abc":
        buffers.note(node, "10.0.0.1", 2000)
    buffers.note("a", "10.0.0.1", 1000)
    assert buffers.smallest(HERE) == 1000
    buffers.forget("a")
    assert buffers.smallest(HERE) == 2000
    buffers.forget("a")
    buffers.note("b", "10.0.0.9", 2000)
    buffers.note("c", "10.0.0.1", 4000)
    assert buffers.smallest(HERE) == 4000


class CountingHosts:
    def __init__(self) -> None:
        self.asked = 0

    def __contains__(self, host: object) -> bool:
        self.asked += 1
        return host in HERE


def test_asking_again_costs_nothing_until_somebody_on_these_hosts_changes() -> None:
    buffers, hosts = PeerBuffers(), CountingHosts()
    for number in range(1000):
        buffers.note(f"n{number}", f"10.0.1.{number}", 2000)
    buffers.note("near", "10.0.0.1", 3000)
    assert buffers.smallest(hosts) == 3000
    hosts.asked = 0
    for _ in range(100):
        assert buffers.smallest(hosts) == 3000
        buffers.note("near", "10.0.0.1", 3000)  # presence says the same over and over
    assert hosts.asked == 0
    buffers.note("far", "10.0.1.1", 1000)
    assert buffers.smallest(hosts) == 3000
    assert hosts.asked == 1
    buffers.note("near", "10.0.0.1", 2500)
    assert buffers.smallest(hosts) == 2500


changes = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    st.none() | st.integers(100_000, 100_003),
)


@unhurried
@given(st.lists(changes, max_size=30), st.booleans())
def test_what_is_kept_is_what_counting_anew_would_give(
    history: list[tuple[str, str, int | None]], same_hosts: bool
) -> None:
    buffers = PeerBuffers()
    known: dict[str, tuple[str, int]] = {}
    for node, host, size in history:
        if size is None:
            buffers.forget(node)
            known.pop(node, None)
        else:
            buffers.note(node, host, size)
            known[node] = (host, size)
        sizes = [size for host, size in known.values() if host in HERE]
        hosts = HERE if same_hosts else set(HERE)
        assert buffers.smallest(hosts) == min(sizes, default=None)


# --- Between nodes -------------------------------------------------------------------------------


def test_a_joiner_tells_its_buffer_before_anybody_publishes_to_it() -> None:
    link = Link()
    a = link.add("a", receive_buffer_bytes=800_000)
    link.run(5)
    assert a.directory.smallest_buffer({"10.0.0.2"}) == 800_000  # its own
    link.add("b", receive_buffer_bytes=400_000)  # its announcement, and no time for anything else
    assert a.directory.smallest_buffer({"10.0.0.2"}) == 400_000
    assert a.directory.smallest_buffer({"10.0.0.7"}) == 800_000


def test_a_joiner_learns_the_buffers_of_those_who_were_there() -> None:
    link = Link()
    link.add_many(3, receive_buffer_bytes=400_000)
    b = link.add("b", receive_buffer_bytes=800_000)
    link.run(2.1)  # a heartbeat
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        assert b.directory.smallest_buffer({host}) == 400_000


def test_basic_nodes_tell_their_buffers_too() -> None:
    link = Link()
    a = link.add("a", mode="basic", receive_buffer_bytes=800_000)
    b = link.add("b", mode="basic", receive_buffer_bytes=400_000)
    link.run(3)
    assert a.directory.smallest_buffer({"10.0.0.2"}) == 400_000
    assert b.directory.smallest_buffer({"10.0.0.1"}) == 400_000


def test_a_node_that_left_or_fell_silent_no_longer_counts() -> None:
    link = Link()
    a = link.add("a")
    b = link.add("b", receive_buffer_bytes=200_000)
    c = link.add("c", receive_buffer_bytes=100_000)
    link.run(5)
    hosts = {"10.0.0.2", "10.0.0.3"}
    assert a.directory.smallest_buffer(hosts) == 100_000
    link.close(c)
    assert a.directory.smallest_buffer(hosts) == 200_000
    link.remove(b)
    link.run(15)
    assert a.directory.smallest_buffer(hosts) is None


def test_a_node_that_knows_no_buffer_says_nothing_of_it() -> None:
    link = Link()
    a = link.add("a")
    link.add("b")
    link.run(5)
    assert a.directory.smallest_buffer({"10.0.0.2"}) is None
    assert not any(b'"rb"' in datagram for datagram in link.datagrams)


def test_only_presence_and_announcements_tell_it() -> None:
    link = Link()
    link.add_many(3, receive_buffer_bytes=400_000)
    link.add("late", receive_buffer_bytes=400_000)
    link.run(3)
    told = [
        (is_share(frame), frame.receive_buffer_bytes)
        for _, _, frame in link.sent
        if isinstance(frame, PresenceFrame | ListFrame)
    ]
    assert set(told) == {(True, None), (False, 400_000)}


def test_strangers_are_not_remembered() -> None:
    """Who is in nobody's list could be anybody, any number of times."""
    link = Link()
    a = link.add("a")
    link.run(5)
    for number in range(100):
        forged = forge(
            encode_presence,
            node=f"x{number}",
            version=1,
            name="x",
            mode="delayed",
            is_master=False,
            settled=True,
            digest=Digest(1, 1),
            sums=None,
            receive_buffer_bytes=100_000,
        )
        link.inject(forged, "10.0.0.1")
    assert a.directory.smallest_buffer({"10.0.0.1"}) is None


def test_the_buffer_never_makes_a_datagram_larger_than_allowed() -> None:
    link = Link()
    name = "n" * 255
    a = link.add(name, receive_buffer_bytes=2**53)
    number = 0
    while len(link.datagrams) < 40:
        a.subscribe(f"topic/{number}", "sink", link.now)
        number += 1
        link.run(0.1)
    assert max(map(len, link.datagrams)) <= 1400
    assert digest_of(a).nodes == 1
    longest = forge(
        encode_list,
        entries=[],
        digest=Digest(2**53, 1),
        sums=None,
        covers=None,
        part=(65_534, 65_535),
        settled=True,
        receive_buffer_bytes=2**53,
    )
    without = longest.replace(b',"rb":9007199254740992', b"")
    assert len(longest) - len(without) <= len('"cov":""') + 64


def test_a_buffer_that_no_node_would_have_is_not_believed() -> None:
    link = Link()
    a = link.add("a", receive_buffer_bytes=800_000)
    link.add("b", receive_buffer_bytes=1)
    assert a.directory.smallest_buffer({"10.0.0.2"}) == 800_000

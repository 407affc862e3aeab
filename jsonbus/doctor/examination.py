"""One examination: gathers the facts of the machine, joins the group, listens and asks for a
while.
"""

from __future__ import annotations

import select
import time
from dataclasses import replace

from jsonbus import Bus
from jsonbus.config import BusSettings, load

from ..core.wire.frames import EchoedFrame
from ..errors import TransportError
from ..frontend.opening import open_transport
from ..transport import offload, platforms
from ..transport.base import Transport
from .echo import Asker
from .echo_figures import figures_of
from .facts import Facts, JoinFacts, NodeFacts, SealFacts
from .machine import count_machine_drops, survey_machine
from .traffic import Bystander, Traffic, receive_from

#: The end of the time is for answers in transit: nothing is sent any more.
GRACE_S = 0.5
GRACE_SHARE_MAX = 0.25
#: How long nodes that were not heard themselves may take to answer.
PING_S = 0.5
#: How long a send may wait for room.
SEND_S = 0.1


def examine(settings: BusSettings, duration_s: float) -> Facts:
    """Gather all facts, within `duration_s` and little more; failing to join the group is one of
    them.

    Raises ConfigError for settings that contradict each other.
    """
    config = load(**settings)
    facts = Facts(
        group=config.group,
        port=config.port,
        ttl=config.ttl,
        choices=config.interface,
        duration_s=duration_s,
    )
    try:
        facts = replace(facts, machine=survey_machine())
        transport = open_transport(config, hears_itself=True)
    except TransportError as error:
        return replace(facts, refusal=str(error))
    try:
        return Examination(facts, transport, settings, config.rate_limit).run()
    finally:
        transport.close()


class Examination:
    """Listens for a while to a group that is joined."""

    def __init__(
        self,
        facts: Facts,
        transport: Transport,
        settings: BusSettings,
        rate_limit: float | None,
    ) -> None:
        self._facts = facts
        self._settings = settings
        self._transport = transport
        now = time.monotonic()
        seal = transport.describe().seal
        added_bytes = 0 if seal is None else seal.added_bytes
        self._asker = Asker(time.time() - now, now, rate_limit, added_bytes)
        self._traffic = Traffic(self._asker.node)
        self._own_addresses = {
            address for each in facts.machine.interfaces for address in each.addresses
        }

    def run(self) -> Facts:
        drops_before = count_machine_drops()
        bystander = Bystander(self._facts.group, self._facts.port)
        try:
            nodes = self._listen_as_a_node(bystander)
        finally:
            bystander.close()
        traffic = self._traffic.facts
        traffic.own_sent = len(self._asker.sizes)
        traffic.elsewhere = dict(bystander.counts)
        traffic.kernel_drops = self._transport.kernel_drops()
        traffic.machine_drops_ever = drops = count_machine_drops()
        if drops is not None and drops_before is not None:
            traffic.machine_drops = drops - drops_before
        return replace(
            self._facts,
            joined=self._join_facts(),
            seal=self._seal_facts(),
            nodes=nodes,
            listeners=tuple(
                figures_of(self._asker, node, self._own_addresses) for node in self._asker.listeners
            ),
            traffic=traffic,
        )

    def _listen_as_a_node(self, bystander: Bystander) -> tuple[NodeFacts, ...]:
        """Listen while a bus asks who is there: the others answer only to a node."""
        try:
            bus = Bus(**self._settings)
        except TransportError as error:
            self._traffic.facts.send_error = str(error)
            self._listen(bystander)
            return ()
        with bus:
            self._traffic.own_bus = bus.id
            self._listen(bystander)
            if any(each.address is None and not each.is_self for each in bus.nodes()):
                bus.ping(timeout=PING_S)  # known from a list, and perhaps just silent
            return tuple(
                NodeFacts(
                    node=each.node,
                    name=each.name,
                    address=each.address,
                    is_here=(each.address or "").partition(":")[0] in self._own_addresses,
                    lost=each.lost,
                    clock_ahead_s=each.clock_ahead_s,
                )
                for each in bus.nodes()
                if not each.is_self
            )

    def _listen(self, bystander: Bystander) -> None:
        duration_s = self._facts.duration_s
        end = time.monotonic() + duration_s
        last_echo_at = end - min(GRACE_S, GRACE_SHARE_MAX * duration_s)
        sockets = [*self._transport.sockets()]
        if bystander.socket is not None:
            sockets.append(bystander.socket)
        while (now := time.monotonic()) < end:
            if self._asker.due_at <= now < last_echo_at:
                self._send(self._asker.next_echo(now))
            wake_at = self._asker.due_at if self._asker.due_at < last_echo_at else end
            ready = select.select(sockets, [], [], max(0.0, wake_at - time.monotonic()))[0]
            if bystander.socket in ready:
                bystander.look()
            self._receive()

    def _receive(self) -> None:
        for data, sender in receive_from(self._transport):
            frame = self._traffic.sort(data, sender)
            if isinstance(frame, EchoedFrame):
                self._asker.receive(frame, sender, time.monotonic())

    def _send(self, datagram: bytes) -> None:
        try:
            send(self._transport, datagram)
        except TransportError as error:
            facts = self._traffic.facts
            facts.send_error = facts.send_error or str(error)

    def _seal_facts(self) -> SealFacts | None:
        seal = self._transport.describe().seal
        if seal is None:
            return None
        return SealFacts(bus=seal.bus, key=seal.key, refused=dict(seal.refused))

    def _join_facts(self) -> JoinFacts:
        info = self._transport.describe()
        return JoinFacts(
            interfaces=tuple(each.name for each in info.interfaces),
            receive_buffer_asked_bytes=info.receive_buffer_asked_bytes,
            receive_buffer_obtained_bytes=info.receive_buffer_obtained_bytes,
            one_by_one=tuple(
                each.name
                for each in info.interfaces
                if platforms.IS_LINUX and not offload.cuts_runs(each, info.group)
            ),
        )


def send(transport: Transport, datagram: bytes) -> bool:
    """Send, waiting a moment for room; raises TransportError if every interface refused."""
    run = (datagram,)
    return transport.send(run) or (transport.wait_writable(SEND_S) and transport.send(run))

"""The channels of a `Bus`: bind a port, connect to a port of another node."""

from __future__ import annotations

import threading
from time import monotonic

from jsonbus.errors import ChannelError, ClosedError
from jsonbus.frontend.channels.binding import BaseBinding
from jsonbus.frontend.channels.channel import Handler
from jsonbus.frontend.channels.channels import BaseChannels
from jsonbus.frontend.checks import check_optional_seconds
from jsonbus.sync.channel import Channel
from jsonbus.sync.channel_io import ChannelIO
from jsonbus.sync.direct_receive import PollerPool
from jsonbus.sync.loop import Loop


class Binding(BaseBinding[Channel]):
    """A port of this node that other nodes connect to. Close it to take no more channels.

    Without `on_accept`, call `accept` or iterate. All methods may be called from any thread.
    """

    def __init__(
        self, channels: Channels, port: str, on_accept: Handler | None, exclusive: bool
    ) -> None:
        super().__init__(channels, port, on_accept, exclusive)
        self._will_wait = channels.loop.workers.will_wait
        self._arrived = threading.Condition(self._lock)

    def accept(self, timeout: float | None = None) -> Channel:
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_acceptable()
        deadline = None if timeout_s is None else monotonic() + timeout_s
        self._will_wait()
        with self._lock:
            while not self._waiting:
                if self._is_closed:
                    raise self._closed_error()
                remaining_s = None if deadline is None else deadline - monotonic()
                if remaining_s is not None and remaining_s <= 0:
                    raise self._timeout_error(timeout_s)
                self._arrived.wait(remaining_s)
            return self._waiting.popleft()

    def __iter__(self) -> Binding:
        return self

    def __next__(self) -> Channel:
        try:
            return self.accept()
        except ClosedError:
            raise StopIteration from None

    def _notify(self) -> None:
        # All: a single thread woken may be interrupted in that moment, and accept nothing.
        self._arrived.notify_all()


class Channels(BaseChannels[Channel, Binding]):
    """The channels of one bus, from its first `bind` or `connect` on. Any thread."""

    loop: Loop
    _channel_type = Channel
    _binding_type = Binding

    def __init__(self, loop: Loop, bus: object) -> None:
        """Raises TransportError if the system has no thread left."""
        super().__init__(loop, bus)
        self.pollers = PollerPool()
        self._io = ChannelIO(self.manager, loop.node.settings.name, loop.log)

    def connect(
        self, node: str, port: object, timeout: float, *, retry: bool, wait: bool
    ) -> Channel:
        """Do what `Bus.connect` promises."""
        channel, call = self._make_call(node, port, timeout, retry=retry)
        try:
            self.manager.post(lambda: self.manager.connector.begin(call))
            if wait:
                channel.wait_until_open()
        except ChannelError:
            raise
        except BaseException:  # a signal's handler raised: nobody will get this channel
            channel.close(0.0)
            raise
        return channel

    def close(self, deadline: float) -> None:
        """Close all channels, and let their handlers finish."""
        self._io.close(deadline)
        self.pollers.close()
        if not self.loop.workers.are_current():
            for channel in tuple(self.manager.busy):
                assert isinstance(channel, Channel)
                channel.wait_until_handled(deadline)

    def cut_off(self) -> None:
        self.manager.cut_off()
        self._io.release()
        self.pollers.close()

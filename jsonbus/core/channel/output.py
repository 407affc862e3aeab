"""The output of one end of a channel: frames in order, in pieces that wait to be written."""

from __future__ import annotations

from collections import deque

#: What a piece is: the beginning of a frame, or its end, of a control frame or of a message.
BEGINNING, END_OF_CONTROL, END_OF_MESSAGE = range(3)


class OutputQueue(deque[tuple[bytes | memoryview, int]]):
    """Pieces, each with its place in the frame. A deque, as appending to it must cost no call."""

    __slots__ = ("is_amid_frame",)

    def __init__(self) -> None:
        super().__init__()
        self.is_amid_frame = False  # a part of the first frame was written

    def peek(self, pieces_max: int) -> list[bytes | memoryview]:
        """Return the first pieces."""
        if len(self) <= pieces_max:
            return [piece for piece, _ in self]
        return [self[index][0] for index in range(pieces_max)]

    def remove_written(self, count: int) -> None:
        """Remove so many bytes from the beginning."""
        while count:
            piece, place = self[0]
            size = len(piece)
            if count < size:
                self[0] = memoryview(piece)[count:], place
                self.is_amid_frame = True
                break
            count -= size
            self.popleft()
            self.is_amid_frame = place == BEGINNING

    def drop(self, *, keeps_frame: bool) -> int:
        """Drop everything but the rest of a frame that has begun; return how many messages."""
        kept: list[tuple[bytes | memoryview, int]] = []
        while self.is_amid_frame and keeps_frame and self:
            kept.append(self.popleft())
            if kept[-1][1] != BEGINNING:
                break
        dropped = sum(1 for _, place in self if place == END_OF_MESSAGE)
        self.clear()
        self.extend(kept)
        return dropped

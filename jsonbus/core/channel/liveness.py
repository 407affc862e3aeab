"""When an end of a channel speaks although it has nothing to say, and when it gives the other up.

An end that has written nothing for BEAT_S sends a beat. One that has heard nothing for SILENCE_S
takes the other for gone. Thousands of idle channels shall cost little, so both are long. But an end
to which something was sent answers within ANSWER_S, with a beat if with nothing else: so one that
has sent something and hears nothing for UNANSWERED_S need not wait longer. An end that does not
read cannot know what was sent to it, and beats as often: see `ChannelEnd`.

An end before version 0.7 beats every 2 s and bears 7 s of silence. It does not say so in its
greeting, as later ones do; towards it, an end beats as often as it does.
"""

from __future__ import annotations

from jsonbus.core.channel.limits import ANSWER_S, BEAT_S, SILENCE_S, UNANSWERED_S


class Liveness:
    """What was heard and said last, and what follows. Any byte is a sign of life."""

    __slots__ = (
        "_has_asked",
        "_is_beating",
        "beat_at",
        "beat_s",
        "heard_at",
        "silent_at",
        "spoken_at",
    )

    def __init__(self, now: float) -> None:
        #: The pause between beats. An owner of many ends varies it, lest they all beat in step.
        self.beat_s = BEAT_S
        self.heard_at = self.spoken_at = now
        self.beat_at = now + BEAT_S  # when to send a beat
        self.silent_at = now + SILENCE_S  # when to take the other end for gone
        self._has_asked = False  # something was written since anything was heard
        self._is_beating = False  # what is written next is a beat, which nobody answers

    def suit(self, silence_s: int) -> None:
        """Beat as often as the other end needs, which bears so many seconds of silence."""
        if silence_s < SILENCE_S:
            self.beat_s = ANSWER_S

    def hear(self, now: float, output_bytes: int) -> None:
        """Note a sign of life, while so many bytes wait to be written."""
        self.heard_at = now
        self.silent_at = now + (UNANSWERED_S if output_bytes else SILENCE_S)
        self._has_asked = output_bytes > 0

    def hear_news(self, now: float, output_bytes: int) -> None:
        """Note a sign of life that has to be answered: more than a beat. Without calls."""
        self.heard_at = now
        self.silent_at = now + (UNANSWERED_S if output_bytes else SILENCE_S)
        self._has_asked = output_bytes > 0
        if now + ANSWER_S < self.beat_at:
            self.beat_at = now + ANSWER_S

    def speak(self, now: float) -> None:
        """Note that something was written."""
        self.spoken_at = now
        self.beat_at = now + self.beat_s
        if self._is_beating:
            self._is_beating = False
        elif not self._has_asked:
            self._has_asked = True
            if now + UNANSWERED_S < self.silent_at:
                self.silent_at = now + UNANSWERED_S

    def beat(self, now: float) -> None:
        """Note that a beat is put out, even if it has to wait: a second one would say no more."""
        self.spoken_at = now
        self.beat_at = now + self.beat_s
        self._is_beating = True

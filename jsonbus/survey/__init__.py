"""What happens on the bus, for people who look at it: topics, nodes, rates, losses.

    survey = Survey()
    bus.subscribe("**", survey.take, in_batches=True)
    picture = survey.picture(time.monotonic(), bus.nodes(), bus.stats())

Nothing here has a clock, a thread or a socket: it is told messages, nodes and the time.
"""

from __future__ import annotations

from .interval_table import Rhythms
from .intervals import Rhythm, RhythmView, Spread
from .survey import PUBLISHERS_MAX, TOPICS_MAX, WINDOW_S, Survey
from .value_size import size_of
from .views import NodeView, Overview, Picture, TopicView

__all__ = [
    "PUBLISHERS_MAX",
    "TOPICS_MAX",
    "WINDOW_S",
    "NodeView",
    "Overview",
    "Picture",
    "Rhythm",
    "RhythmView",
    "Rhythms",
    "Spread",
    "Survey",
    "TopicView",
    "size_of",
]

"""Collects what happens on the bus for people who look at it: topics, nodes, rates, losses.

    survey = Survey()
    bus.subscribe("**", survey.take, in_batches=True)
    picture = survey.picture(time.monotonic(), bus.nodes(), bus.stats())

Nothing here has a clock, a thread or a socket: it is given messages, nodes and the time. Every
table is bounded. Files in the order in which a message meets them:

topic.py        what is remembered of one topic and its publishers; the size of a value
survey.py       Survey: takes messages, returns pictures
samples.py      samples of counters, for rates over the last few seconds
nodes.py        rates from the totals that nodes report, and when to ask for them
subscribers.py  which nodes want a topic
views.py        the picture: topics, nodes, overview
intervals.py    for `hz` and `bw`: time between messages, and sizes, per topic

Called by the commands top, hz and bw, and by the gateway's dashboard and metrics. Calls the public
names of jsonbus.
"""

from __future__ import annotations

from .intervals import Intervals, IntervalTable, IntervalView, Spread
from .nodes import Asking
from .survey import PUBLISHERS_MAX, TOPICS_MAX, WINDOW_S, Survey
from .topic import size_of
from .views import NodeView, Overview, Picture, TopicView

__all__ = [
    "PUBLISHERS_MAX",
    "TOPICS_MAX",
    "WINDOW_S",
    "Asking",
    "IntervalTable",
    "IntervalView",
    "Intervals",
    "NodeView",
    "Overview",
    "Picture",
    "Spread",
    "Survey",
    "TopicView",
    "size_of",
]

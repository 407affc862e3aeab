"""Topics: a tree by levels with live values and rates, or the busiest first; beside it the chosen
topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nicegui import events, ui

from jsonbus.survey import TopicView

from ..metrics.survey_observer import SurveyObserver
from .elements import Row, Rows, block, card
from .snapshot import Snapshot, Tab, busiest_first
from .texts import clean, count_out, shorten, show_ago, show_bytes, show_count, show_rate
from .topic_detail import TopicDetail
from .topic_tree import Branch, TopicTree, filter_topics

#: Branches are opened at first as far as this many rows go.
FIRST_ROWS = 40

#: A topic has at most 128 characters, and so does a search.
SEARCH_CHARACTERS_MAX = 128

_COLUMNS = "name: Topic, value: Value, rate: per s, bytes: B/s, age: heard"


class TopicsTab(Tab):
    """The tab Topics."""

    def __init__(
        self,
        observer: SurveyObserver,
        topic: str,
        refresh: Callable[[], None],
        on_topic: Callable[[str], None],
    ) -> None:
        """`topic` is chosen at first, unless it is empty; `on_topic` gets every later choice."""
        self._refresh = refresh
        self._on_topic = on_topic
        self._tree = TopicTree()
        self._is_fresh = True
        self._wanted = ""
        self._order = "tree"
        self._snapshot: Snapshot | None = None
        with block("split") as self._split:
            with card("list"):
                with block("toolbar"):
                    hint = "Search, or a pattern: plant/*/temp"
                    search = ui.input(placeholder=hint, on_change=self._search).classes("search")
                    search.props("dense outlined clearable debounce=250 maxlength=128")
                    search.props("aria-label=Search")
                    orders = {"tree": "Tree", "rate": "Busiest"}
                    order = ui.toggle(orders, value="tree", on_change=self._turn).classes("order")
                    order.props("dense no-caps unelevated")
                    self._count = ui.label("").classes("count")
                self._rows = Rows(
                    "Topics",
                    _COLUMNS,
                    empty="No topic was heard yet.",
                    on_pick=self._pick,
                    on_scroll=refresh,
                    is_tree=True,
                ).classes("topics")
            with card("detail"):
                self._detail = TopicDetail(observer, refresh, on_close=lambda: self.choose(""))
        self.choose(topic)

    def choose(self, topic: str) -> None:
        """Show this topic beside the list; "" is none."""
        self._detail.choose(topic)
        self._split.classes(**{"add" if topic else "remove": "has-detail"})
        if topic:
            self._tree.open_to(topic)
        self._on_topic(topic)
        self._refresh()

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        of, found = len(snapshot.topics), self._show_rows(snapshot)
        count = count_out(of, "topic")
        self._count.set_text(f"{show_count(found)} of {count}" if self._wanted else count)
        self._detail.show(snapshot)

    def close(self) -> None:
        self._detail.close()

    def _show_rows(self, snapshot: Snapshot) -> int:
        """Show the list; return the number of topics that the search found."""
        topics = snapshot.topics
        empty = "No topic was heard yet. Messages that somebody wants appear here."
        if self._wanted and topics:
            empty = f"None of {count_out(len(topics), 'topic')} matches."
        show = partial(self._rows.show, chosen=self._detail.topic, empty=empty)
        if self._order == "rate":
            found = filter_topics(topics, self._wanted)
            views = sorted((topics[topic] for topic in found), key=busiest_first)
            show(views, lambda view: _topic_row(clean(view.topic), view, snapshot))
            return len(views)
        self._tree.update(topics, self._wanted)
        if self._is_fresh and topics:
            self._is_fresh = False
            self._tree.open_first(FIRST_ROWS)
        branches = self._tree.rows()
        show(branches, lambda branch: self._branch_row(branch, snapshot))
        return sum(branch.is_topic for branch in branches)

    def _branch_row(self, branch: Branch, snapshot: Snapshot) -> Row:
        if not branch.branches:
            view = snapshot.topics.get(branch.path)
            return _topic_row(clean(branch.name), view, snapshot, branch)
        views = [snapshot.topics[topic] for topic in branch.topics() if topic in snapshot.topics]
        own = snapshot.topics.get(branch.path) if branch.is_topic else None
        value = shorten(own.value) if own is not None else count_out(len(views), "topic")
        return Row(
            branch.path,
            (
                clean(branch.name),
                (value, "" if own is not None else "soft"),
                show_rate(sum(view.rate for view in views)),
                show_bytes(sum(view.bytes_per_s for view in views)),
                show_ago(snapshot.at - max((view.last_at for view in views), default=snapshot.at)),
            ),
            branch.depth,
            self._tree.is_open(branch),
            "branch",
        )

    def _pick(self, key: str) -> None:
        branches = () if self._order == "rate" else self._tree.rows()
        branch = next((each for each in branches if each.path == key), None)
        if branch is not None and branch.branches:
            self._tree.toggle(key)
            if not branch.is_topic:
                self._refresh()
                return
        if self._snapshot is not None and key in self._snapshot.topics:
            self.choose(key)

    def _search(self, event: events.ValueChangeEventArguments[str | None]) -> None:
        self._wanted = str(event.value or "").strip()[:SEARCH_CHARACTERS_MAX]
        self._rows.scroll_to_top()
        self._refresh()

    def _turn(self, event: events.ValueChangeEventArguments[str | None]) -> None:
        self._order = str(event.value)
        self._rows.scroll_to_top()
        self._refresh()


def _topic_row(
    name: str, view: TopicView | None, snapshot: Snapshot, branch: Branch | None = None
) -> Row:
    depth = 0 if branch is None else branch.depth
    if view is None:  # forgotten just now
        return Row("" if branch is None else branch.path, (name, "", "", "", ""), depth)
    value = shorten(view.value) if view.is_value_kept else f"{show_bytes(view.size)}, not kept"
    age_s = snapshot.at - view.last_at
    rates = show_rate(view.rate), show_bytes(view.bytes_per_s)
    return Row(
        view.topic,
        (name, (value, "mono"), *rates, show_ago(age_s)),
        depth,
        style="" if age_s < 60 else "old",
    )

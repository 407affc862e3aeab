from __future__ import annotations

from jsonbus.sim import World
from jsonbus.sim.report import TRACE_HEADER, TRACE_LEGEND, Tally, Trace, markdown_table


def test_a_tally_counts_a_share_once_however_many_datagrams_it_takes() -> None:
    tally = Tally()
    world = World(1, checkers=(tally,))
    world.add_agreed_group(60, lambda number: ["sensors/*"])
    world.add_node("late")
    world.run_for(1.0)
    assert tally.shares < tally.datagrams["share"]
    sent = sum(node.core.view.stats()["list_shares_sent"] for node in world.nodes)
    assert tally.shares == sent
    assert tally.repairs == sum(node.core.view.stats()["list_repairs_sent"] for node in world.nodes)
    announced = sum(node.core.view.stats()["announcements_sent"] for node in world.nodes)
    assert tally.datagrams["announcement"] >= announced > 0


def test_a_tally_shows_kinds_with_their_bytes_and_starts_anew_when_reset() -> None:
    tally = Tally()
    world = World(1, checkers=(tally,))
    world.add_plain(topics=["a"])
    world.run_for(1.0)
    assert tally.rows()[1].split() == ["1", str(tally.bytes["plain list"]), "plain", "list"]
    tally.reset()
    assert len(tally.rows()) == 1


def test_a_trace_tells_who_did_what_in_which_state() -> None:
    lines: list[str] = []
    world = World(1, checkers=(Trace(lines.append),))
    reader = world.add_node("r", patterns=["a"])
    writer = world.add_node("w")
    world.run_for(2.0)
    world.publish(writer, "a")
    world.publish(writer, "nobody")
    world.run_for(0.1)
    world.note(None, "the moon rises")
    world.serve(reader, "echo")
    world.run_for(0.1)
    world.request(writer, "echo")
    world.run_for(0.1)
    world.leave(reader)
    text = "\n".join(lines)
    for part in (
        "joins, mode delayed, wants a",
        "(joining)",
        "> announcement",
        "> presence",
        "= StateChanged",
        "publishes a #0",
        "> messages",
        "< a #0 for a",
        "publishes nobody #1: nobody wants it",
        "the moon rises",
        "< echo ? for jsonbus.request/echo",
        "> bye",
    ):
        assert part in text, part
    assert all(line[10:12] == "  " for line in lines)


def test_the_legend_explains_every_column_of_the_header() -> None:
    for column in TRACE_HEADER.split():
        assert f"    {column} " in TRACE_LEGEND


def test_a_table_is_markdown() -> None:
    table = markdown_table(("a", "b"), [(1, "x"), (2, "y")])
    assert table == "| a | b |\n|---:|---:|\n| 1 | x |\n| 2 | y |"

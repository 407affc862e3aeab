"""Measure the parts of the way from publish to handler, without a network.

    python3 -m tools.bench wire                        all, in µs of CPU per message
    python3 -m tools.bench wire --only publish,receive some
    python3 -m tools.bench wire --instructions         instructions per message instead
    python3 -m tools.bench wire --profile node-receive where the time of one loop goes

The floor of each table is what orjson, or a bare program around it (bus/floor.py), needs for the
same messages in the same run. Repetitions are interleaved; medians are shown.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from collections.abc import Callable, Iterator
from time import process_time

from tools._setup import say
from tools.bench.measures import Measure, Sample
from tools.bench.report import make_parser, make_rows, make_table, parse, write_json
from tools.bench.wire import loops as pieces
from tools.bench.wire.instructions import measure_instructions

#: By table, the loops; the first is the floor, if the table has one.
LOOPS: dict[str, dict[str, Callable[[int], pieces.Loop]]] = {
    "encode": {
        "orjson-dumps": pieces.dump_values,
        "codec-dumps": pieces.dump_by_codec,
        "encode-message": pieces.encode_messages,
        "encode-batch": pieces.encode_batches,
    },
    "decode": {
        "orjson-loads": pieces.load_values,
        "decode-message": pieces.decode_messages,
        "decode-batch": pieces.decode_batches,
    },
    "publish": {
        "floor-publish": pieces.floor_publish,
        "floor-publish-singly": pieces.floor_publish_singly,
        "node-publish": pieces.node_publish,
        "node-publish-singly": pieces.node_publish_singly,
        "bus-publish": pieces.bus_publish,
        "node-publish-reliable": pieces.node_publish_reliable,
        "bus-publish-reliable": pieces.bus_publish_reliable,
    },
    "receive": {
        "floor-receive": pieces.floor_receive,
        "floor-receive-singly": pieces.floor_receive_singly,
        "node-receive": pieces.node_receive,
        "node-receive-singly": pieces.node_receive_singly,
        "node-receive-slices": pieces.node_receive_slices,
        "bus-receive": pieces.bus_receive,
        "node-receive-reliable": pieces.node_receive_reliable,
        "bus-receive-reliable": pieces.bus_receive_reliable,
    },
    "refuse": {
        "node-suppress": pieces.node_suppress,
        "node-refuse": pieces.node_refuse,
    },
    "match": {
        "match-again": pieces.match_exactly,
        "match-anew": pieces.match_anew,
    },
}

MEASURES = {
    "encode": Measure("a 74-byte value to a datagram", "µs", ("orjson-dumps",)),
    "decode": Measure("a datagram to a frame, per message", "µs", ("orjson-loads",)),
    "publish": Measure("publish to datagrams, per message", "µs", ("floor-publish",)),
    "receive": Measure("datagrams to inboxes or handlers", "µs", ("floor-receive",)),
    "refuse": Measure("what nobody wants: a publish, and 1.6 KB received", "µs"),
    "match": Measure("find a topic's patterns among 1,000", "µs"),
}
MAKERS = {name: make for loops in LOOPS.values() for name, make in loops.items()}


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.loop is not None:
        MAKERS[options.loop](max(options.prepare, options.messages))(options.messages)
        pieces.close_buses()
        return 0
    if options.profile is not None:
        _profile(options.profile, options.messages)
        return 0
    if options.instructions:
        print(measure_instructions(say, options.messages))
        return 0
    rows = make_rows(list(_measure(options)), MEASURES)
    for name in rows:
        print(f"\n{make_table(MEASURES[name], rows[name])}")
    write_json(options.json, rows, MEASURES)
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser("wire", __doc__ or "", LOOPS)
    add = parser.add_argument
    add("--repetitions", type=int, default=7, metavar="N", help="(7)")
    add("--messages", type=int, default=20_000, metavar="N", help="(20000)")
    add("--instructions", action="store_true", help="count them (minutes)")
    add("--profile", metavar="LOOP", choices=MAKERS, help="where time goes")
    add("--loop", metavar="LOOP", choices=MAKERS, help="run one, show nothing")
    add("--prepare", type=int, default=0, metavar="N", help="with --loop")
    options = parse(parser, arguments, {"only": LOOPS}, {"messages": 100, "repetitions": 1})
    if options.quick:
        options.repetitions = 1
    return options


def _measure(options: argparse.Namespace) -> Iterator[Sample]:
    for repetition in range(options.repetitions):
        say(f"repetition {repetition + 1}/{options.repetitions}")
        for table in options.only:
            for name, make in LOOPS[table].items():
                loop = make(options.messages)
                begun_s = process_time()
                loop(options.messages)
                figure_us = 1e6 * (process_time() - begun_s) / options.messages
                pieces.close_buses()
                yield Sample(table, name, figure_us)


def _profile(name: str, messages: int) -> None:
    loop = MAKERS[name](messages)
    profile = cProfile.Profile()
    profile.runcall(loop, messages)
    pieces.close_buses()
    pstats.Stats(profile).sort_stats("tottime").print_stats(20)

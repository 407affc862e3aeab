"""One frame of every kind and form, with its bytes; used both ways."""

from __future__ import annotations

from base64 import b64encode

from jsonbus.core.wire import codec
from jsonbus.core.wire.encode import (
    Control,
    encode_beat,
    encode_bye,
    encode_list,
    encode_nak,
    encode_ping,
    encode_pong,
    encode_presence,
    encode_repair,
    encode_reply,
    encode_request,
    encode_retained,
    encode_where,
)
from jsonbus.core.wire.encode_messages import (
    Stamp,
    encode_batch,
    encode_fragment,
    encode_marks,
    encode_message,
)
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    About,
    BeatFrame,
    ByeFrame,
    Digest,
    EchoedFrame,
    EchoFrame,
    Entry,
    FragmentFrame,
    Frame,
    Header,
    ListFrame,
    MessagesFrame,
    MissingOfTopic,
    MissingSlices,
    NakFrame,
    PingFrame,
    PongFrame,
    PresenceFrame,
    RepairFrame,
    ReplyFrame,
    RequestFrame,
    RetainedFrame,
    Totals,
    WhereFrame,
)
from jsonbus.doctor.echo_wire import encode_echo, encode_echoed

HEADER = Header("k3v9", 1_731_715_200_123, 812, 9041, 1_731_715_200_123_456)
JB = {"n": "k3v9", "i": 1_731_715_200_123, "q": 812, "m": 9041, "t": 1_731_715_200_123_456}
_TAIL = b'"jb":{"n":"k3v9","i":1731715200123,"q":812,"m":9041,"t":1731715200123456'

_KITCHEN = Entry("k3v9", 1_731_715_200_123, 4, name="Küche", patterns=("b/*", "a"))
_ATTIC = Entry("attic-1", 7, 2, patterns=("a", "jsonbus.request/add"), mode="basic")
_MASTER = Entry("m1", 8, 3, name="m", mode="master", is_master=True)
_LEFT = Entry("l1", 9, 5, name="l", mode="master", left=True)
_GONE = Entry("g1", 10, 6, gone=True)
_PLAIN = Entry("plain:10.0.0.7:2416", 0, 1, patterns=("b/*",))

SUMS = 3 << 4080 | 5
_SUMS_BASE64 = b64encode(bytes([0, 3, *bytes(509), 5]))

SAMPLES: list[tuple[Frame, bytes]] = [
    (
        MessagesFrame(HEADER, [["hello", {"jb": {"n": "x"}, "topic": 'a"\\'}]]),
        b'{"topic":"hello","payload":{"jb":{"n":"x"},"topic":"a\\"\\\\"},' + _TAIL + b"}}",
    ),
    (
        MessagesFrame(HEADER, [['grüße "an"', None]]),
        '{"topic":"grüße \\"an\\"","payload":null,'.encode() + _TAIL + b"}}",
    ),
    (
        MessagesFrame(HEADER, [["t1", 1], ["t2", [2.5]], ["t1", "x"]]),
        b'{"topic":"jsonbus.batch","payload":[["t1",1],["t2",[2.5]],["t1","x"]],' + _TAIL + b"}}",
    ),
    (
        # A single message of a reliable topic, for peers that understand no batches.
        MessagesFrame(HEADER, [["door", "open", 17]]),
        b'{"topic":"door","payload":"open",' + _TAIL + b',"s":17}}',
    ),
    (
        MessagesFrame(HEADER, [["door", "open", 17, 1]]),
        b'{"topic":"door","payload":"open",' + _TAIL + b',"s":17,"k":1}}',
    ),
    (
        MessagesFrame(HEADER, [["door", None, None, 1]]),
        b'{"topic":"door","payload":null,' + _TAIL + b',"k":1}}',
    ),
    (
        MessagesFrame(HEADER, [["t1", 1, 17], ["t2", 2, None, 1], ["t1", 3, 18, 1], ["t3", 4]]),
        b'{"topic":"jsonbus.batch","payload":[["t1",1,17],["t2",2,null,1],["t1",3,18,1],["t3",4]],'
        + _TAIL
        + b"}}",
    ),
    (
        FragmentFrame(HEADER, 9041, 0, 2, '["t",', 17),
        b'{"topic":"jsonbus.frag","payload":"[\\"t\\",",' + _TAIL + b',"f":[9041,0,2,17]}}',
    ),
    (
        NakFrame(
            HEADER,
            "k3v8",
            7,
            [
                MissingOfTopic("door", [(3, 5), (9, 9)]),
                MissingOfTopic("grüße", [(1, 1)], [MissingSlices(1, 12, 0x105)]),
            ],
        ),
        b'{"topic":"jsonbus.nak","payload":null,'
        + _TAIL
        + ',"nak":["k3v8",7,[["door",[[3,5],[9,9]]],["grüße",[[1,1]],[[1,12,"AQU="]]]]]}}'.encode(),
    ),
    (
        BeatFrame(HEADER, [("door", 17, 3), ("bell", 4, 5)]),
        b'{"topic":"jsonbus.beat","payload":null,'
        + _TAIL
        + b',"beat":[["door",17,3],["bell",4,5]]}}',
    ),
    (
        RepairFrame(HEADER, [["door", {"is": "open"}, 17, 9030], ["bell", None, 4, 9031, 1]]),
        b'{"topic":"jsonbus.repair","payload":[["door",{"is":"open"},17,9030],'
        b'["bell",null,4,9031,1]],' + _TAIL + b"}}",
    ),
    (
        RetainedFrame(HEADER, ("k3v8", "m1"), [["door", "open", 9030, 1_731_715_199_000_000]]),
        b'{"topic":"jsonbus.retained","payload":[["door","open",9030,1731715199000000]],'
        + _TAIL
        + b',"to":["k3v8","m1"]}}',
    ),
    (
        FragmentFrame(HEADER, 9041, 3, 7, 'x","€\\n'),
        b'{"topic":"jsonbus.frag","payload":"x\\",\\"'
        + "€".encode()
        + b'\\\\n",'
        + _TAIL
        + b',"f":[9041,3,7]}}',
    ),
    (
        # An announcement: only the sender's entry.
        ListFrame(HEADER, ["a", "b/*"], [(_KITCHEN, 0.0)], None, None, None, (0, 1), False, 0),
        b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","a","b/*"],'
        + _TAIL
        + ',"subs":{"k3v9":[1731715200123,4,0,"Küche",0,[2,1]]},"rb":0}}'.encode(),
    ),
    (
        # One that tells where and what its sender is.
        ListFrame(
            HEADER, [], [(_MASTER, 0.0)], None, None, None, (0, 1), False, 7, About("büro", "0.2.0")
        ),
        b'{"topic":"jsonbus.topics","payload":["jsonbus.topics"],'
        + _TAIL
        + ',"subs":{"m1":[8,3,0,"m",24,[]]},"rb":7,"host":"büro","sw":"0.2.0"}}'.encode(),
    ),
    (
        # A full share.
        ListFrame(
            HEADER,
            ["a", "b/*", "jsonbus.request/add"],
            [(_ATTIC, 1.5), (_MASTER, 0.001), (_LEFT, 2.0), (_GONE, 60.0), (_PLAIN, 300.0)],
            Digest(12, 0x9F),
            SUMS,
            ALL_BUCKETS,
            (0, 1),
            True,
        ),
        b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","a","b/*","jsonbus.request/add"],'
        + _TAIL
        + b',"subs":{"attic-1":[7,2,1500,"",4,[1,3]],"m1":[8,3,1,"m",24,[]],'
        b'"l1":[9,5,2000,"l",9,[]],"g1":[10,6,60000,"",2,[]],'
        b'"plain:10.0.0.7:2416":[0,1,300000,"",0,[2]]},'
        b'"dig":[12,"000000000000009f"],"sum":"' + _SUMS_BASE64 + b'","cov":"all","u":1}}',
    ),
    (
        # What differs, in parts.
        ListFrame(HEADER, [], [(_MASTER, 0.0)], Digest(1, 2**64 - 1), None, 0x1F, (2, 3), True),
        b'{"topic":"jsonbus.topics","payload":["jsonbus.topics"],'
        + _TAIL
        + b',"subs":{"m1":[8,3,0,"m",24,[]]},"dig":[1,"ffffffffffffffff"],"cov":"'
        + b"1f".rjust(64, b"0")
        + b'","part":[2,3],"u":1}}',
    ),
    (
        PresenceFrame(HEADER, 4, "Küche", "basic", False, False, None, None, (), 425_984),
        b'{"topic":"jsonbus.presence","payload":null,'
        + _TAIL
        + ',"v":4,"name":"Küche","mode":"basic","rb":425984}}'.encode(),
    ),
    (
        PresenceFrame(
            HEADER,
            4,
            "k",
            "basic",
            False,
            False,
            None,
            None,
            about=About(None, None, 40123),
            is_answer=True,
        ),
        b'{"topic":"jsonbus.presence","payload":null,'
        + _TAIL
        + b',"v":4,"name":"k","mode":"basic","ch":40123,"an":1}}',
    ),
    (
        PresenceFrame(
            HEADER,
            4,
            "",
            "delayed",
            False,
            True,
            None,
            None,
            (),
            None,
            About("desk", "1.0", 65_535),
        ),
        b'{"topic":"jsonbus.presence","payload":null,'
        + _TAIL
        + b',"v":4,"name":"","mode":"delayed","u":1,"host":"desk","sw":"1.0","ch":65535}}',
    ),
    (
        PresenceFrame(
            HEADER,
            5,
            "m",
            "master",
            True,
            True,
            Digest(2, 1),
            SUMS,
            (("k3v8", 7), ("plain:10.0.0.7:2416", 0)),
        ),
        b'{"topic":"jsonbus.presence","payload":null,'
        + _TAIL
        + b',"v":5,"name":"m","mode":"master","ms":1,"u":1,"dig":[2,"0000000000000001"],"sum":"'
        + _SUMS_BASE64
        + b'","sus":[["k3v8",7],["plain:10.0.0.7:2416",0]]}}',
    ),
    (ByeFrame(HEADER, 6), b'{"topic":"jsonbus.bye","payload":null,' + _TAIL + b',"v":6}}'),
    (
        RequestFrame(HEADER, "add", {"a": 1}, 17, 1000),
        b'{"topic":"jsonbus.request","payload":{"a":1},' + _TAIL + b',"r":["add",17,1000]}}',
    ),
    (
        ReplyFrame(HEADER, "k3v8", 17, 3, None),
        b'{"topic":"jsonbus.reply","payload":3,' + _TAIL + b',"re":["k3v8",17]}}',
    ),
    (
        ReplyFrame(HEADER, "k3v8", 17, None, "it broke"),
        b'{"topic":"jsonbus.reply","payload":null,'
        + _TAIL
        + b',"re":["k3v8",17],"er":"it broke"}}',
    ),
    (  # it cancels its own request
        ReplyFrame(HEADER, "k3v9", 17, None, None),
        b'{"topic":"jsonbus.reply","payload":null,' + _TAIL + b',"re":["k3v9",17]}}',
    ),
    (PingFrame(HEADER, 5), b'{"topic":"jsonbus.ping","payload":null,' + _TAIL + b',"p":5}}'),
    (
        PongFrame(HEADER, "k3v8", 5),
        b'{"topic":"jsonbus.pong","payload":null,' + _TAIL + b',"p":5,"to":"k3v8"}}',
    ),
    (
        PongFrame(HEADER, "k3v8", 5, About(channel_port=1)),
        b'{"topic":"jsonbus.pong","payload":null,' + _TAIL + b',"p":5,"to":"k3v8","ch":1}}',
    ),
    (
        WhereFrame(HEADER, "Küche"),
        b'{"topic":"jsonbus.where","payload":null,' + _TAIL + ',"who":"Küche"}}'.encode(),
    ),
    (EchoFrame(HEADER, 6), b'{"topic":"jsonbus.echo","payload":"",' + _TAIL + b',"p":6}}'),
    (
        EchoedFrame(HEADER, "k3v8", 6, 4, 1, ""),
        b'{"topic":"jsonbus.echoed","payload":"",' + _TAIL + b',"p":6,"to":"k3v8","got":[4,1]}}',
    ),
    (
        EchoedFrame(HEADER, "k3v9", 0, 0, 0, "Küche"),
        b'{"topic":"jsonbus.echoed","payload":"",'
        + _TAIL
        + ',"p":0,"to":"k3v9","got":[0,0],"name":"Küche"}}'.encode(),
    ),
    (
        PongFrame(HEADER, "k3v8", 5, About("desk")),
        b'{"topic":"jsonbus.pong","payload":null,' + _TAIL + b',"p":5,"to":"k3v8","host":"desk"}}',
    ),
    (
        PongFrame(HEADER, "k3v8", 5, totals=Totals(1, 2, 3, 4, 5, 6)),
        b'{"topic":"jsonbus.pong","payload":null,'
        + _TAIL
        + b',"p":5,"to":"k3v8","st":[1,2,3,4,5,6]}}',
    ),
    (
        PresenceFrame(HEADER, 4, "k", "basic", False, False, None, None, totals=Totals(sent=2**53)),
        b'{"topic":"jsonbus.presence","payload":null,'
        + _TAIL
        + b',"v":4,"name":"k","mode":"basic","st":[9007199254740992,0,0,0,0,0]}}',
    ),
]

SAMPLE_IDS = [type(frame).__name__ for frame, _ in SAMPLES]


def stamp_before(header: Header) -> Stamp:
    """The stamp whose next datagram is the header's."""
    stamp = Stamp(header.node, header.incarnation)
    stamp.counter = header.counter - 1
    return stamp


def encode_frame(frame: Frame) -> bytes:
    """The bytes that the node of the frame's header sends for it."""
    header = frame.header
    assert header is not None
    stamp = stamp_before(header)
    first, sent_us = header.first_message, header.sent_us
    match frame:
        case MessagesFrame(_, [[topic, value, *marks]]):
            in_header = encode_marks(marks[0], marks[1:] == [1])[1] if marks else b""
            parts = (codec.dumps(topic), codec.dumps(value))
            return encode_message(stamp, *parts, first, sent_us, in_header)
        case MessagesFrame(_, items):
            return encode_batch(stamp, codec.dumps(items)[1:-1], first, sent_us)
        case FragmentFrame(_, number, index, count, text, sequence):
            place = (number, index, count, sequence)
            return encode_fragment(stamp, codec.dumps(text)[1:-1], place, first, sent_us)
        case EchoFrame(_, echo_id):
            return encode_echo(stamp, first, sent_us, echo_id=echo_id, size_bytes=0)
        case EchoedFrame(_, to, echo_id, heard, repeated, name):
            return encode_echoed(
                stamp,
                first,
                sent_us,
                to=to,
                echo_id=echo_id,
                heard=heard,
                repeated=repeated,
                name=name,
                size_bytes=0,
            )
        case _:
            return _make_control(frame).encode(stamp, first, sent_us)


def _make_control(frame: Frame) -> Control:
    match frame:
        case ListFrame():
            return encode_list(
                entries=frame.entries,
                digest=frame.digest,
                sums=frame.sums,
                covers=frame.covers,
                part=frame.part,
                settled=frame.settled,
                receive_buffer_bytes=frame.receive_buffer_bytes,
                about=frame.about,
            )
        case PresenceFrame():
            return encode_presence(
                version=frame.version,
                name=frame.name,
                mode=frame.mode,
                is_master=frame.is_master,
                settled=frame.settled,
                digest=frame.digest,
                sums=frame.sums,
                suspects=frame.suspects,
                receive_buffer_bytes=frame.receive_buffer_bytes,
                about=frame.about,
                is_answer=frame.is_answer,
                totals=frame.totals,
            )
        case NakFrame(_, node, incarnation, topics):
            return encode_nak(node, incarnation, topics)
        case BeatFrame(_, beats):
            return encode_beat(beats)
        case RepairFrame(_, items):
            return encode_repair([codec.dumps(item) for item in items])
        case RetainedFrame(_, to, items):
            return encode_retained([codec.dumps(item) for item in items], to)
        case ByeFrame(_, version):
            return encode_bye(version)
        case RequestFrame(_, topic, value, request_id, timeout_ms):
            return encode_request(topic, codec.dumps(value), request_id, timeout_ms)
        case ReplyFrame(_, to, request_id, value, error):
            return encode_reply(to, request_id, codec.dumps(value), error)
        case PingFrame(_, ping_id):
            return encode_ping(ping_id)
        case PongFrame(_, to, ping_id, about, totals):
            return encode_pong(to, ping_id, about, totals)
        case WhereFrame(_, who):
            return encode_where(who)
    raise AssertionError(frame)

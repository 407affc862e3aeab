"""The wire format, version 1: what the bytes of a datagram mean.

Every datagram is one JSON object in UTF-8, `topic` first, `payload` second, at most 65,507 bytes.
That alone is a message, and any program with a UDP socket may send it:

    {"topic":"hello","payload":1}

Nodes of jsonbus add a third key, `jb`, that others may ignore. Every `jb` has these keys:

    {"topic":"hello","payload":1,"jb":{"n":"k3v9","i":1731715200123,"q":812,"m":9041,"t":1731715200123456}}

    n   the sender's id: 1 to 64 printable ASCII characters, not starting with "plain:"
    i   its incarnation: when it started, milliseconds since 1970
    q   the datagram's number within this incarnation, from 1; (n, i, q) names a datagram
    m   the number of its first message; in a datagram without messages, of the next one to come
    t   when it was sent, microseconds since 1970 by the sender's clock

A single message may have two more keys: s, its sequence, if its topic is reliable; k, 1, if it is
retained.

Topics that start with "jsonbus." are reserved; their datagrams make sense only with `jb`, except
the plain list. The payload of the control datagrams is null unless said otherwise, and their
own fields are further keys of `jb`:

    jsonbus.batch      payload [[topic, value], …]: many messages, numbered from m on. Those of a
                       reliable topic have a third item, their sequence: the topic's own count of
                       the node's messages, from 1 (else null), and retained ones 1 as a fourth
    jsonbus.frag       a slice of a message that no datagram holds.   payload: a string, part of the
                       text `[topic, value]`; f: [number of the message, index of the slice from
                       0, number of slices], and fourth the sequence if it has one. In any order
    jsonbus.nak        I miss these.   nak: [node, incarnation, [[topic, [[first, last], …]], …]],
                       ranges of sequences of that node's reliable topics. A topic may have third
                       [[sequence, index, base64], …]: of that message only slices are missing,
                       index + b where bit b of the number in base64 is set
    jsonbus.repair     payload [[topic, value, sequence, number], …]: what was asked for, again;
                       retained ones have 1 as a fifth item. A negative number: it was not sent
                       before, as nobody wanted it, and comes after the message of that number
    jsonbus.retained   payload [[topic, value, number, microseconds], …]: last values, as they were
                       published then.   to: [node, …] that are to take them. One that no datagram
                       holds travels in slices, as [topic, value, null, 2, number, microseconds, to]
    jsonbus.beat       my reliable topics are that far.   beat: [[topic, last sequence, first
                       sequence that can be had again], …]
    jsonbus.topics     the subscription list, or a part of it; see below
    jsonbus.presence   I am here.   v: version of my entry, name, mode: "basic", "master" or
                       "delayed", ms: 1 if I answer in mode master, u, dig, sum as in a list,
                       sus: [[node, incarnation], …] whom I suspect to be gone, rb: bytes that
                       may wait in my receive buffer, as my kernel counts them, if it tells,
                       host: what my machine is called, 1 to 64 bytes, sw: the version of my
                       software, 1 to 32 bytes, both without control characters, ch: the TCP
                       port at which I take channels (channel/wire.py), if I do, an: 1 if this
                       answers jsonbus.where, st: [sent, suppressed, received, lost, repaired,
                       shares], what I have counted (Totals in frames.py)
    jsonbus.bye        I leave.     v: my entry's last version
    jsonbus.request    payload: the value.   r: [topic, request id, milliseconds for which the
                       sender still waits]
    jsonbus.reply      payload: the value.   re: [node that asked, request id], er: text of the
                       failure, at most 250 characters, if serving failed. A reply to its own
                       sender, with payload null, cancels the request: the sender waits no more
    jsonbus.ping       p: ping id
    jsonbus.pong       p: ping id, to: node that asked, host, sw, ch, st as in presence
    jsonbus.where      who: id or name of a node, which answers with presence
    jsonbus.echo       payload: a text that makes up the size.   p: echo id, from 1
    jsonbus.echoed     payload: the same.   p: echo id, to: node that asked, got: [echoes of that
                       node heard so far, how many of them came again]. With the sender itself in
                       to, and its name: I answer echoes

Echoes are how `jsonbus doctor` measures the network between two hosts, with an answer as large as
its echo. Nodes neither send nor answer them, and learn nothing from them, not even of the sender.

A list's payload is the sorted union of the patterns of the entries inside, after "jsonbus.topics"
itself: a plain node reads the topics that somebody wants and needs nothing else. A plain node's
own list is just that, without `jb`. In ours, `jb` adds:

    subs   {node: [incarnation, version, age, name, flags, [index, …]], …}: whole entries. Age in
           milliseconds since the node was heard; indexes count the payload from 0. Flags are a
           sum of 1 left, 2 gone, 4 mode basic, 8 mode master, 16 answers in mode master, 32 coarse:
           the node has too many patterns to name, these cover them and more. An entry that left
           or is gone has no patterns. A plain node's entry has an id "plain:…". If there are no
           entries, the payload names patterns that the sender has subscribed to just now, and
           that its coarse entry covered before: retained values are given to it as if it came now
    dig    [count, 16 hex digits]: number of entries and XOR of their hashes, of the whole list
    sum    base64 of 512 bytes: 256 bucket sums of 16 bits, of the whole list; may be absent
    cov    "all", or 64 hex digits with bit b set if every entry of bucket b is in this share;
           absent in an announcement, which has only its sender's entry
    part   [index, count] of a list in several datagrams; absent for [0, 1]
    u      1 if the sender was past joining
    rb, host, sw, ch   as in presence; in announcements only

Numbers are integers from 0 to 2**53. Keys that are not known are ignored, and so are further
items at the end of the arrays in `jb`: later versions grow there.

Values are what JSON has, so there is no NaN and no infinity. Integers have at most 64 bits, strings
no lone surrogates, and arrays and objects at most 254 levels inside each other.

A datagram may end with spaces: they make several as long as each other, and so cheaper to send.

A datagram that breaks these rules is refused whole, with one of CAUSES in decode.py.
"""

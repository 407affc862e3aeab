"""Every bound and every time of the protocol, with its unit and its reason.

The bounds of single datagrams are in wire/names.py.
"""

from __future__ import annotations

# --- Sharing -------------------------------------------------------------------------------------

#: Share delays are drawn from 0 to this. 200 ms is short for a joiner and forty times the usual
#: delay of a LAN, so that the first share reaches the others before most timers end.
SHARE_DELAY_MAX_S = 0.2

#: Up to this many nodes the draw is plainly uniform: more answers than one are then unlikely.
SHARE_UNIFORM_NODES = 5

#: A node sends full shares at most this often: a flood of forged announcements, answered at once by
#: a master, must not become a flood of lists. Joiners that come in between share the next answer.
SHARE_INTERVAL_MIN_S = 0.05

#: Datagrams of one list sent in one go, and the pause before the next: a list of 10,000 nodes is
#: 450 datagrams, more than a default receive buffer holds (256 small ones).
LIST_BURST_DATAGRAMS = 32
LIST_BURST_PAUSE_S = 0.002

#: Lists of up to this many nodes are shared whole; larger ones are compared by bucket sums first.
#: 32 entries take about two datagrams; the sums alone take half a one.
WHOLE_LIST_NODES = 32

#: A plain peer is answered at most this often: it repeats its list after every list it hears.
PLAIN_ANSWER_INTERVAL_S = 1.0

#: Nodes that one node may owe its list to at a time: beyond, a full share serves them all anyway.
OBLIGATIONS_MAX = 4096

#: Entries with more patterns are measured before they are believed: with fewer, each of at most 255
#: bytes that JSON may write as two, any entry fits a datagram.
LARGE_ENTRY_PATTERNS = 100

#: An announcement that comes this soon after a share which has its entry was overtaken by the
#: share: it is served. Ten times the usual delay of a LAN, a fifth of a joiner's first repeat.
OVERTAKEN_S = 0.05

#: Entries of a list, ten times the largest bus that was simulated, and the patterns of all of them:
#: some 200 MB that only forged lists would fill.
LIST_ENTRIES_MAX = 100_000
LIST_PATTERNS_MAX = 1_000_000

# --- Joining -------------------------------------------------------------------------------------

#: A joiner repeats its announcement after these times, until it knows that it was heard.
ANNOUNCE_REPEATS_S = (0.25, 0.5, 1.0)

#: Silence after two announcements that makes a joiner sure that it is alone.
SILENCE_S = 0.5

#: The same for a node in doubt that has heard a stranger: longer than between two heartbeats, so
#: that only one who left makes it sure.
STRANGER_SILENCE_S = 3.0

#: A joiner that was neither answered nor left in silence stops waiting and sends everything.
JOIN_S_MAX = 1.5

#: Subscriptions made within one such span travel in one announcement.
CHANGE_GATHER_S = 0.005

#: Messages that wait until a joiner is sure. Overflow is sent, never dropped.
HOLD_MESSAGES_MAX = 1000
HOLD_BYTES_MAX = 1 << 20

# --- Steady state --------------------------------------------------------------------------------

#: Trickle (RFC 6206): the digest of a quiet group is repeated every 30 s, and within 0.5 s
#: after a change.
TRICKLE_MIN_S = 0.5
TRICKLE_MAX_S = 30.0

#: Every node is heard once per heartbeat; all of them together send at most 200 of them a second.
HEARTBEAT_MIN_S = 2.0
HEARTBEATS_PER_S = 200.0

#: A node that never falls silent needs no heartbeat, but those who joined lately know of it only
#: what lists tell: so it says who it is this seldom, 40 times a second for all of them together.
INTRODUCTION_HEARTBEATS = 5.0

#: Heartbeats without a sign of life before a node is suspected.
LEASE_HEARTBEATS = 3.5

#: How long a suspected node has to answer. A false expiry withholds data, a stale entry only wastes
#: packets: so this is many times a LAN's round trip.
SUSPECT_GRACE_S = 1.0

#: Suspects asked for in one datagram (40 bytes each fill one of 1,400), and the pause between two.
SUSPECTS_PER_DATAGRAM = 24
SUSPECT_PAUSE_S = 0.1

#: Entries of nodes that left are remembered, so that a list from before cannot bring them back.
TOMBSTONES_MAX = 20_000

#: Plain peers send their list seldom and never say goodbye.
PLAIN_LEASE_S = 600.0

#: After a plain datagram, messages go out one to a datagram for this long.
PLAIN_HEARD_S = 60.0

#: Plain peers at most: they have no identity but their address, which anybody can invent.
PLAIN_PEERS_MAX = 256

#: Bytes that one plain peer's entry takes in a list; who wants more is taken to want everything.
PLAIN_BYTES_MAX = 16_384

# --- Receiving -----------------------------------------------------------------------------------

#: Counters remembered per node to recognise repeats.
DUPLICATE_WINDOW = 1024

#: A counter this far ahead is believed only when a second datagram confirms it: a single forged one
#: would make everything that the real node sends look old.
COUNTER_JUMP = 1 << 16

#: Senders with sequence and duplicate state. The one met first makes room.
PEERS_MAX = 100_000

#: (cause, sender) pairs that were reported; a reported pair is counted only.
REJECTS_REPORTED_MAX = 1024

#: Topics with a cached route. Beyond, the cache starts anew: cheaper than keeping it in order.
ROUTES_MAX = 131_072

#: Pending events that nobody takes: the oldest make room.
EVENTS_MAX = 10_000

# --- Requests ------------------------------------------------------------------------------------

#: A request is repeated after this, then after twice that, and so on, until its deadline.
REQUEST_REPEAT_S = 0.1

#: Replies kept for repeated requests.
REPLIES_KEPT_MAX = 1024
REPLIES_KEPT_BYTES_MAX = 4 << 20

#: Requests being served at a time; beyond, new ones are counted and dropped: they are repeated.
REQUESTS_SERVED_MAX = 10_000

#: Pings are answered within this, at random, when many nodes would answer at once.
PONG_SPREAD_S = 0.05

#: A timer is due this much early: sums of floats differ in their last digit, and a timer that is
#: "not yet" due at the very instant it asked for would be asked for again and again.
TIMER_SLACK_S = 1e-6

#: Up to this many nodes all answer a ping at once: their pongs fit any receive buffer, and an
#: answer that waited would make the round trip look longer than it is.
PONG_AT_ONCE_NODES = 100

#: Pongs that wait to be sent, and own pings that wait for pongs.
PONGS_WAITING_MAX = 1000
PINGS_OPEN_MAX = 64

#: From this size on a datagram's topic is looked at before the whole is parsed: below, parsing is
#: as fast as looking.
PEEK_BYTES_MIN = 400

#: A difference is looked at again after this: twenty times the usual delay of a LAN.
DIFFERENCE_GRACE_S = 0.1

#: Differences waiting for that: what comes of a few settles the rest as well.
DIFFERENCES_PENDING_MAX = 16

#: Own digests of the past that are recognised in others' datagrams: enough for a burst of changes,
#: and for as long as a datagram may be under way on any LAN.
DIGESTS_REMEMBERED = 32
DIGESTS_REMEMBERED_S = 2.0

#: Receive buffers below this are not believed: publishers would wait for nothing. It is the least
#: that a bus may be opened with.
BUFFER_BYTES_MIN = 65_536

# --- Directory -----------------------------------------------------------------------------------

#: A node that is asked where it is answers at most this often: a flood of questions must not become
#: one of answers. All who ask meanwhile hear the next one.
INTRODUCTION_INTERVAL_S = 0.05

#: A node that told of itself within this time is there, even if no list has it: longer than between
#: two heartbeats of a small bus.
INTRODUCED_S = 2.5

# --- Fragments -----------------------------------------------------------------------------------

#: What one value may have, as JSON, unless the settings say otherwise.
VALUE_BYTES_MAX = 16 << 20

#: A message that got no slice for so long is given up. Repairs of a reliable one take less.
FRAGMENT_AGE_S = 10.0

#: Messages of one sender that may be incomplete at a time, and senders at all.
FRAGMENTS_OPEN_MAX = 64
FRAGMENTS_SENDERS_MAX = 4096

#: Complete messages of a sender whose slices are recognised when they come again.
FRAGMENTS_DONE_MAX = 256

#: What keeping a slice takes besides its text: two objects and a place in a dict.
SLICE_OVERHEAD_BYTES = 150

#: All slices of all senders.
FRAGMENTS_BYTES_MAX = 128 << 20

# --- Reliable topics ------------------------------------------------------------------------------

#: A gap is asked for after this at the earliest: longer than datagrams of a LAN overtake each
#: other, shorter than anybody notices.
GAP_WAIT_S = 0.005

#: Then the subscribers draw a delay up to this. Ten times a slow LAN's delay: of a thousand that
#: miss the same datagram two ask, on average.
NAK_DELAY_MAX_S = 0.05

#: After each try, how long to wait for the repair before the next delay is drawn; after the last of
#: them, before giving up. The first is a little longer than repeats are ignored, so that a repeat
#: is never too early. All five tries, with their delays, take at most 1.64 s.
NAK_WAITS_S = (0.06, 0.12, 0.24, 0.48, 0.48)

#: Repeated requests for a message are ignored for this long after it was sent again: what the other
#: subscribers, whose NAKs cross the repair, would ask for in vain.
REPAIR_IGNORE_S = 0.05

#: Messages that one NAK is answered with. Beyond, they are asked for again.
REPAIRS_PER_NAK = 1024

#: Bytes of repairs, with what keeping them takes: a burst, some twenty datagrams of small messages,
#: which any receive buffer takes, and then per second: 40,000 small messages. Faster ones would
#: drown whoever just lost messages; and forged NAKs of fifty bytes must not yield megabytes.
REPAIR_BURST_BYTES = 128 << 10
REPAIR_BYTES_PER_S = 20 << 20

#: Repairs that have to wait go out at most this often, a handful at a time.
REPAIR_TICK_S = 0.001

#: After the last message of a topic a beat follows after this, then after twice that, and so on, up
#: to the longest, until the history has expired.
BEAT_MIN_S = 0.05
BEAT_MAX_S = 2.0

#: Beats taken in one go: a datagram or two. The rest stay due.
BEATS_PER_CALL = 64

#: How long a message can be had again. Five tries take 1.64 s; a network that is away for longer
#: than this has made its nodes leave anyway.
HISTORY_AGE_S = 10.0

#: What is kept of one topic, and of all. A flood of 300,000 small messages a second, more than one
#: node sends, needs a tenth of a second's worth, 30,000, until the first NAK (some 60 ms) is
#: answered; in bytes as many of a hundred bytes, or one value of the largest size. In all twice
#: that, so that one flooded topic leaves the others their histories.
HISTORY_TOPIC_MESSAGES_MAX = 1 << 15
HISTORY_TOPIC_BYTES_MAX = 16 << 20
HISTORY_MESSAGES_MAX = 1 << 16
HISTORY_BYTES_MAX = 32 << 20

#: What keeping a message takes besides its text: objects, and places in two dicts.
RECORD_OVERHEAD_BYTES = 400

#: Topics whose sequence is remembered: more than twice the messages kept, so that at least half of
#: them have no history when room must be made.
HISTORY_TOPICS_MAX = 1 << 17

#: A message is not pushed out of the history before this age: publishers wait. The shortest covers
#: a first NAK (5 ms, 50 ms of delay, the way, two busy processes); at that a full history still
#: takes 300 MB a second, and nobody waits. The longest covers all five tries and the ways: 8 MB a
#: second, or 16,000 small messages, which any receiver can take.
HISTORY_KEEP_MIN_S = 0.1
HISTORY_KEEP_MAX_S = 2.0

#: While messages are kept for longer, publishing is spread over the keep time, but for so much that
#: may go out in one go: at the longest keep time some 80 small messages.
PUBLISH_BURST_S = 0.005

#: Without NAKs the keep time halves after each of these: back from the longest in five seconds.
HISTORY_KEEP_FALL_S = 1.0

#: Streams, that is publishers' topics, with a place in them; some 500 bytes each, 30 MB. Only
#: forged ones are as many.
STREAMS_MAX = 1 << 16

#: A stream of which nothing was heard for so long (at most twice that) is forgotten: six times the
#: history's age, so that no repair of what was delivered before can still come.
STREAM_IDLE_S = 60.0

#: A sequence this far ahead of the next one, or behind it, is beyond any history: it is believed
#: when a second one confirms it, and all between is given up.
STREAM_JUMP = HISTORY_TOPIC_MESSAGES_MAX

#: A stream goes back only if nothing else was heard of it for so long: longer than between beats,
#: and longer than a network delays a datagram, which would otherwise be delivered twice.
STREAM_BACK_S = 2.5

#: Messages that came before their turn, per stream (by number: STREAM_JUMP) and in all. What a
#: history may hold fits, and two of the largest values.
STREAM_BYTES_MAX = 32 << 20
STREAMS_AHEAD_MAX = 1 << 17
STREAMS_BYTES_MAX = 128 << 20

#: Gaps of one stream. Every tenth message of ten thousand lost; beyond, what comes further ahead is
#: dropped, and asked for later.
STREAM_GAPS_MAX = 1024

#: A message whose slices keep arriving is asked for this long after the last of them: many times
#: the pause that a sender makes between slices.
SLICE_WAIT_S = 0.02

#: Ranges of one NAK, and its bytes less header: it fits a datagram of 1,400. A stream asks for that
#: many ranges at a time: four NAKs.
NAK_RANGES_MAX = 60
NAK_BYTES_MAX = 700
STREAM_ASK_RANGES_MAX = 4 * NAK_RANGES_MAX

#: Messages before the first one heard of a stream that a subscriber may ask for: what is lost in
#: the second or so that it takes to hear of a stream, if not everything is.
CLAIM_MESSAGES_MAX = 1024

#: Reliable messages that came in part, or are to be sent again in part, and are known as such.
PARTIAL_MAX = 4096

#: A publisher that closes stays for so long after its last reliable message, or the last NAK: two
#: beats, the first NAK, and the repair.
NEEDED_S = 0.3

#: Subscriptions for which a node remembers how far each other one was. Programs subscribe in one
#: go, as a rule, while hardly anything comes.
MARKS_MAX = 16

#: Idle streams are looked for this often.
STREAMS_EXPIRY_S = 5.0

#: What a repaired message, or one of a batch, is taken to weigh while it waits for its turn: its
#: value is no longer text. Large ones come in slices, whose size is known.
REPAIR_SIZE_BYTES = 500

# --- Retained values -----------------------------------------------------------------------------

#: A value is given to late subscribers after 0 to this, as lists are shared: those that start
#: together are served together.
GIVE_DELAY_MAX_S = 0.2

#: It is given so many times, this far apart: at 5 % loss one in eight thousand misses all of them.
GIVE_TIMES = 3
GIVE_REPEAT_S = 0.3

#: Topics with a retained value, and the bytes of all, at one node: a large building's sensors.
RETAINED_TOPICS_MAX = 100_000
RETAINED_BYTES_MAX = 64 << 20

#: Given values that are recognised when they come again.
RETAINED_SEEN_MAX = 100_000

#: Nodes that one datagram gives values to; beyond, another one does.
GIVE_NODES_MAX = 24

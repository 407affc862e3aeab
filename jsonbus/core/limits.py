"""Every bound and every time of the protocol, with its unit and its reason.

The bounds of single datagrams are in wire/names.py.
"""

from __future__ import annotations

# --- Sharing -------------------------------------------------------------------------------------

#: Share delays are drawn from 0 to this. 200 ms is short for a joiner but forty times the usual
#: delay of a LAN, so the first share reaches the other nodes before most of their timers end.
SHARE_DELAY_MAX_S = 0.2

#: Up to this many nodes the draw is uniform: more than one answer is then unlikely.
SHARE_UNIFORM_NODES = 5

#: The shortest time between two full shares of a node. A flood of forged announcements, answered at
#: once by a master, must not become a flood of lists. Joiners that come in between get the next
#: answer together.
SHARE_INTERVAL_MIN_S = 0.05

#: Datagrams of one list sent without a pause, and the pause before the next ones: a list of 10,000
#: nodes takes 450 datagrams, more than a default receive buffer holds (256 small ones).
LIST_BURST_DATAGRAMS = 32
LIST_BURST_PAUSE_S = 0.002

#: Lists of up to this many nodes are shared whole; larger ones are compared by bucket sums first.
#: 32 entries take about two datagrams; the sums alone take half a datagram.
WHOLE_LIST_NODES = 32

#: The shortest time between two answers to a plain peer: it repeats its list after every list it
#: hears.
PLAIN_ANSWER_INTERVAL_S = 1.0

#: Nodes to which one node may owe its list at a time; with more, one full share serves them all.
OBLIGATIONS_MAX = 4096

#: Entries with more patterns are measured before they are accepted. With fewer, each of at most 255
#: bytes that JSON may write as two, any entry fits a datagram.
LARGE_ENTRY_PATTERNS = 100

#: An announcement that comes this soon after a share that already has its entry was overtaken by
#: the share and needs no answer. Ten times the usual delay of a LAN, a fifth of a joiner's first
#: repeat.
OVERTAKEN_S = 0.05

#: Entries of a list (ten times the largest bus that was simulated), and the patterns of all
#: entries: some 200 MB, which only forged lists would fill.
LIST_ENTRIES_MAX = 100_000
LIST_PATTERNS_MAX = 1_000_000

# --- Joining -------------------------------------------------------------------------------------

#: A joiner repeats its announcement after these times, until it knows that it was heard.
ANNOUNCE_REPEATS_S = (0.25, 0.5, 1.0)

#: After two announcements and this much silence, a joiner is sure that it is alone. A doubting
#: node, which has heard others, waits for a lease instead: after that, a silent node is gone.
SILENCE_S = 0.5

#: A joiner that got neither an answer nor silence stops waiting after this and sends everything.
JOIN_S_MAX = 1.5

#: Subscriptions made within this time travel in one announcement; and within this much more for
#: each pattern of the node, ten times what it takes to announce it.
CHANGE_GATHER_S = 0.005
GATHER_PER_PATTERN_S = 0.00002

#: Covered patterns that are named at a time (membership/naming.py), in bytes: some 300 topics, less
#: than a datagram of the largest size. Of more, `**` is named.
NAMED_BYTES_MAX = 8_192

#: Messages that wait until a joiner is sure. Beyond this they are sent, never dropped.
HOLD_MESSAGES_MAX = 1000
HOLD_BYTES_MAX = 1 << 20

# --- Steady state --------------------------------------------------------------------------------

#: Trickle (RFC 6206): the digest of a quiet group is repeated every 30 s, and within 0.5 s
#: after a change.
TRICKLE_MIN_S = 0.5
TRICKLE_MAX_S = 30.0

#: Every node is heard once per heartbeat interval; all nodes together send at most 200 heartbeats a
#: second.
HEARTBEAT_MIN_S = 2.0
HEARTBEATS_PER_S = 200.0

#: The most nodes whose heartbeats leave together, so that a wake-up brings many of them: as many
#: datagrams as a list sends without a pause.
COMPANY_NODES = LIST_BURST_DATAGRAMS

#: After this part of a heartbeat in silence, a node speaks when its company does. Heartbeats are
#: drawn from 0.9 on, so nodes that once spoke together go on doing so.
COMPANY_SILENCE = 0.75

#: A node that is always sending needs no heartbeat, but recent joiners know only its entry in the
#: lists. So it reports its details this seldom: 40 times a second for all nodes together.
INTRODUCTION_HEARTBEATS = 5.0

#: Heartbeats missed in a row before a node is suspected.
LEASE_HEARTBEATS = 3.5

#: How long a suspected node has to answer. A false expiry withholds data, while a stale entry only
#: wastes packets, so this is many times the round trip of a LAN.
SUSPECT_GRACE_S = 1.0

#: Suspects named in one datagram (40 bytes each fill 1,400), and the pause between two such
#: datagrams.
SUSPECTS_PER_DATAGRAM = 24
SUSPECT_PAUSE_S = 0.1

#: How long entries of departed nodes are remembered, so that an older list cannot bring them back.
TOMBSTONES_MAX = 20_000

#: Plain peers send their list rarely and never say goodbye.
PLAIN_LEASE_S = 600.0

#: After a plain datagram, each message is sent in a separate datagram for this long.
PLAIN_HEARD_S = 60.0

#: The most plain peers: their only identity is their address, which anybody can forge.
PLAIN_PEERS_MAX = 256

#: Bytes that one plain peer's entry takes in a list; a peer that wants more is assumed to want
#: everything.
PLAIN_BYTES_MAX = 16_384

# --- Receiving -----------------------------------------------------------------------------------

#: Counters remembered per node to recognize repeats.
DUPLICATE_WINDOW = 1024

#: A counter this far ahead is believed only when a second datagram confirms it: otherwise a single
#: forged datagram would make all datagrams of the real node look old.
COUNTER_JUMP = 1 << 16

#: Senders that are not in the list, whose repeats are still recognized and whose losses are still
#: counted should they come (back): nodes that left, mostly. When there are more, the one that left
#: first is forgotten. Some 1 KB each; commands that come and go must not add up, nor forged ids.
PEERS_UNLISTED_MAX = 1024

#: Topics of unwanted large messages, each with its sender. When full, they are cleared.
UNWANTED_MAX = 100_000

#: (cause, sender) pairs that were reported; after its report a pair is only counted.
REJECTS_REPORTED_MAX = 1024

#: Topics with a cached route. When full, the cache is cleared: cheaper than keeping it in order.
ROUTES_MAX = 131_072

#: Pending events that no front end takes; when full, the oldest are dropped.
EVENTS_MAX = 10_000

# --- Requests ------------------------------------------------------------------------------------

#: A request is repeated after this, then after twice that, and so on, until its deadline.
REQUEST_REPEAT_S = 0.1

#: A request with less time left is not cancelled but left to expire. Requests carry their time in
#: milliseconds; and a front end's wait may end a little before the node's.
CANCEL_LEFT_S_MIN = 0.001

#: Replies kept for repeated requests.
REPLIES_KEPT_MAX = 1024
REPLIES_KEPT_BYTES_MAX = 4 << 20

#: Requests served at the same time; beyond this, new ones are counted and dropped, because their
#: senders repeat them.
REQUESTS_SERVED_MAX = 10_000

#: When many nodes would answer a ping, each waits for a random time up to this.
PONG_SPREAD_S = 0.05

#: A timer counts as due this much early. Sums of floats differ in their last digit, and a timer
#: that is "not yet" due at the very instant it asked for would be set again and again.
TIMER_SLACK_S = 1e-6

#: Up to this many nodes, all answer a ping at once: their pongs fit any receive buffer, and a
#: delayed answer would make the round trip look longer than it is.
PONG_AT_ONCE_NODES = 100

#: Pongs that wait to be sent, and own pings that wait for pongs.
PONGS_WAITING_MAX = 1000
PINGS_OPEN_MAX = 64

#: From this size on, the topic of a datagram is looked at before the whole is parsed. Below,
#: parsing is as fast.
PEEK_BYTES_MIN = 400

#: A difference between lists is checked again after this: twenty times the usual delay of a LAN.
DIFFERENCE_GRACE_S = 0.1

#: Differences that wait for this check; resolving a few resolves the rest as well.
DIFFERENCES_PENDING_MAX = 16

#: Earlier digests of this node that it recognizes in datagrams of others: enough for a burst of
#: changes, and for as long as a datagram may be under way on any LAN.
DIGESTS_REMEMBERED = 32
DIGESTS_REMEMBERED_S = 2.0

#: Smaller reported receive buffers are not believed, because publishers would wait for nothing.
#: This is the smallest buffer that a bus may be opened with.
BUFFER_BYTES_MIN = 65_536

# --- Directory -----------------------------------------------------------------------------------

#: A node reports its address at most this often: a flood of questions must not become a flood of
#: answers. All nodes that ask meanwhile hear the next answer.
INTRODUCTION_INTERVAL_S = 0.05

#: A node that reported its details within this time is present, even if no list has it: longer than
#: the time between two heartbeats of a small bus.
INTRODUCED_S = 2.5

# --- Fragments -----------------------------------------------------------------------------------

#: The largest value, as JSON, unless the settings say otherwise.
VALUE_BYTES_MAX = 16 << 20

#: An incomplete message is given up when no slice has come for this long. Repairs of a reliable
#: message take less.
FRAGMENT_AGE_S = 10.0

#: Incomplete messages per sender at a time, and senders with incomplete messages.
FRAGMENTS_OPEN_MAX = 64
FRAGMENTS_SENDERS_MAX = 4096

#: Complete messages per sender whose repeated slices are recognized.
FRAGMENTS_DONE_MAX = 256

#: Memory that a slice takes in addition to its text: two objects and a place in a dict.
SLICE_OVERHEAD_BYTES = 150

#: Bytes of all slices of all senders.
FRAGMENTS_BYTES_MAX = 128 << 20

# --- Reliable topics ------------------------------------------------------------------------------

#: The earliest time at which a gap is asked for: longer than datagrams on a LAN overtake each
#: other, shorter than anybody notices.
GAP_WAIT_S = 0.005

#: After that, each subscriber draws a delay up to this. It is ten times a slow LAN's delay: of a
#: thousand subscribers that miss the same datagram, two ask on average.
NAK_DELAY_MAX_S = 0.05

#: How long to wait for the repair after each try, before the next delay is drawn, or, after the
#: last try, before giving up. The first is a little longer than repeats are ignored, so that a
#: repeat is never too early. All five tries, with their delays, take at most 1.64 s.
NAK_WAITS_S = (0.06, 0.12, 0.24, 0.48, 0.48)

#: Repeated requests for a message are ignored for this long after it was sent again: they are NAKs
#: of other subscribers that crossed the repair.
REPAIR_IGNORE_S = 0.05

#: The most messages in answer to one NAK. The rest are asked for again.
REPAIRS_PER_NAK = 1024

#: Bytes of repairs, memory included. First the burst: some twenty datagrams of small messages,
#: which any receive buffer holds. Then the rate per second: 40,000 small messages. A higher rate
#: would overload the nodes that just lost messages, and forged NAKs of fifty bytes must not yield
#: megabytes.
REPAIR_BURST_BYTES = 128 << 10
REPAIR_BYTES_PER_S = 20 << 20

#: Repairs that have to wait are sent at most this often, a handful at a time.
REPAIR_TICK_S = 0.001

#: After the last message of a topic a beat follows after this, then after twice that, and so on; at
#: most so far apart as long as messages are kept. Then the beats thin out, and end when they would
#: be more than half an hour apart: ten of them, so that an outage that swallows all beats of the
#: first seconds ends with a late one.
BEAT_MIN_S = 0.05
BEAT_MAX_S = 2.0
BEAT_LAST_S = 1800.0

#: Beats for nodes that appear come at most this often: hundreds may start within a second.
BEAT_ANNOUNCE_S = 0.5

#: Beats sent at a time: a datagram or two. The rest stay due.
BEATS_PER_CALL = 64

#: How long a message can be repaired. Five tries take 1.64 s, and nodes whose network is away for
#: longer than this have left anyway.
HISTORY_AGE_S = 10.0

#: The history of one topic, and of all topics. A flood of 300,000 small messages a second, more
#: than one node sends, needs a tenth of a second's worth, 30,000, until the first NAK (some 60 ms)
#: is answered. In bytes, that is as many messages of a hundred bytes, or one value of the largest
#: size. All topics get twice that, so that one flooded topic leaves the others their histories.
HISTORY_TOPIC_MESSAGES_MAX = 1 << 15
HISTORY_TOPIC_BYTES_MAX = 16 << 20
HISTORY_MESSAGES_MAX = 1 << 16
HISTORY_BYTES_MAX = 32 << 20

#: Memory that a message takes in addition to its text: objects, and places in two dicts.
RECORD_OVERHEAD_BYTES = 400

#: Topics whose sequence is remembered: more than twice the messages kept, so that at least half of
#: them have no history when one must be dropped.
HISTORY_TOPICS_MAX = 1 << 17

#: A message stays in the history for at least this time; publishers wait if it is full. The
#: shortest time covers a first NAK (5 ms, 50 ms of delay, the way, two busy processes); a full
#: history then still takes 300 MB a second, and no publisher waits. The longest time covers all
#: five tries and the ways: 8 MB a second, or 16,000 small messages, which any receiver can take.
HISTORY_KEEP_MIN_S = 0.1
HISTORY_KEEP_MAX_S = 2.0

#: While messages are kept for longer, publishing is spread over the keep time, except for this
#: fraction, which may be sent at once: at the longest keep time some 80 small messages.
PUBLISH_BURST_S = 0.005

#: Without NAKs the keep time halves after each of these: from the longest to the shortest in five
#: seconds.
HISTORY_KEEP_FALL_S = 1.0

#: Streams (topics of one publisher) whose position is remembered; some 500 bytes each, 30 MB. Only
#: forged streams are so many.
STREAMS_MAX = 1 << 16

#: How often a stream is checked: six times the history's age. After this many checks in a row, an
#: hour's worth, in which neither it nor its publisher was heard, it is forgotten: until then the
#: publisher may come back, and what was missed is told. Counted in checks, not in seconds, so that
#: a process that was stopped for long does not forget everything when it goes on.
STREAM_IDLE_S = 60.0
STREAM_IDLE_CHECKS = 60

#: A sequence this far ahead of the next one, or behind it, is beyond any history. It is believed
#: when a second one confirms it, and everything in between is given up.
STREAM_JUMP = HISTORY_TOPIC_MESSAGES_MAX

#: A stream goes back only if nothing else was heard of it for this long: longer than between beats,
#: and longer than a network delays a datagram, which would otherwise be delivered twice.
STREAM_BACK_S = 2.5

#: Messages that came early and wait for their turn, per stream (by number: STREAM_JUMP) and in all.
#: This holds a full history, and two of the largest values.
STREAM_BYTES_MAX = 32 << 20
STREAMS_AHEAD_MAX = 1 << 17
STREAMS_BYTES_MAX = 128 << 20

#: Gaps of one stream: every tenth of ten thousand messages lost. With more gaps, messages further
#: ahead are dropped and asked for later.
STREAM_GAPS_MAX = 1024

#: A message whose slices keep arriving is asked for this long after the last of them: many times
#: the pause that a sender makes between slices.
SLICE_WAIT_S = 0.02

#: Ranges of one NAK, and its bytes without header, so that it fits a datagram of 1,400; and the
#: ranges that a stream asks for at a time: four NAKs.
NAK_RANGES_MAX = 60
NAK_BYTES_MAX = 700
STREAM_ASK_RANGES_MAX = 4 * NAK_RANGES_MAX

#: Messages before the first one heard of a stream that a subscriber may ask for: those lost in the
#: second or so before the subscriber first hears of the stream, unless everything is lost.
CLAIM_MESSAGES_MAX = 1024

#: Reliable messages that came in part, or must be sent again in part.
PARTIAL_MAX = 4096

#: A closing publisher stays for this long after its last reliable message, or the last NAK: two
#: beats, the first NAK, and the repair.
NEEDED_S = 0.3

#: Subscriptions for which a node remembers the position of each other node. Programs usually make
#: all subscriptions at once, while few messages come.
MARKS_MAX = 16

#: How often the node looks for idle streams.
STREAMS_EXPIRY_S = 5.0

#: Assumed memory of a repaired or batched message that waits for its turn: its value is no longer
#: text. Large messages come in slices, whose size is known.
REPAIR_SIZE_BYTES = 500

# --- Retained values -----------------------------------------------------------------------------

#: A value is sent to late subscribers after a delay of 0 to this, as lists are shared: subscribers
#: that start together are served together.
GIVE_DELAY_MAX_S = 0.2

#: How often the value is sent, and how far apart: at 5 % loss one in eight thousand subscribers
#: misses all of them.
GIVE_TIMES = 3
GIVE_REPEAT_S = 0.3

#: Topics with a retained value, and the bytes of all their values, at one node: enough for a large
#: building's sensors.
RETAINED_TOPICS_MAX = 100_000
RETAINED_BYTES_MAX = 64 << 20

#: Retained deliveries that are recognized when they are repeated.
RETAINED_SEEN_MAX = 100_000

#: The most nodes that one datagram delivers retained values to; the rest get another datagram.
GIVE_NODES_MAX = 24

"""TLS on the ports of a gateway and a bridge, with the standard library's `ssl`.

What it promises
----------------
TLS 1.2 at least. Nothing passes a port unencrypted but one refusal: a client that does not speak
TLS is told so in its own protocol. A connection has ten seconds for its handshake, and a bounded
number of connections are in theirs at the same time. A certificate that is renewed on disk is used
for the connections that come after; those that are open go on.

    socket -> TlsConnection -> the protocol of the port: HTTP, lines of text, requests of Spark

Why not asyncio's own TLS
-------------------------
`create_server(ssl=…)` offers what these ports need to somebody else's measure: it cannot close one
direction alone, which a text client needs for its last lines; its buffers take 64 KiB for each
client that does not read, and tell nobody; and a handshake that fails is reported to no one.
TlsConnection is thinner: `ssl.SSLObject` does the cryptography, the transport below does all
waiting and buffering, and the protocol above sees the same transport as without TLS.

Measured with 500 text clients on a shared machine with two cores: 0.35 ms of CPU for a handshake
(P-256), and 50 KB for a client, most of them OpenSSL's.

Files
-----
- certificate.py: a certificate and its key from two files, read again when they change.
- port.py: what the connections of one port share: limits, figures, words for plain clients.
- connection.py: one connection.

Neighbours
----------
Used by ../gateway and by the bus half of spark_bridge. Spark has the other end in
spark_bridge/source, which knows nothing of this one.
"""

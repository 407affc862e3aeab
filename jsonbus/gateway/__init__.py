"""The gateway: programs that cannot join a multicast group use the bus over TCP and HTTP.

What it promises
----------------
A client publishes and subscribes over HTTP, server-sent events or a text protocol on TCP. A webhook
gets its messages by POST: a message whose publish was answered with 200 is on disk for every
webhook that wants it, and is sent again until the webhook answers 200. Whatever clients do, memory,
connections and time are bounded.

    text clients --- text/ ------+
    HTTP clients --- http/ ------+--- hub.py --- AsyncBus --- the bus
    webhooks ------- webhooks/ --+
                        |
                      SQLite

Everything runs in one event loop, except the thread that commits to the webhooks' store, the
threads that look up names, and the thread that writes /metrics.

Files, in the order in which data meets them
--------------------------------------------
- gateway.py: GatewayConfig and Gateway, which opens the parts and ends them in reverse order.
- http/: the HTTP interface.
- text/: the text protocol on TCP.
- health.py: whether the gateway does its work, which `/health` tells.
- services.py: the parts that the HTTP application uses, in one object.
- values.py: values from and to JSON, for all kinds of clients.
- hub.py: one node with one subscription for all clients; publishes to webhooks, then to the bus.
- webhooks/: durable deliveries by POST.
- metrics/: figures of the gateway and of the whole bus, for Prometheus.
- dashboard/: a live page of the bus at `/`.
- rate_limited_log.py: warnings at most once a minute per cause.

Neighbours
----------
`jsonbus gateway` (../cli/commands/gateway.py) runs it. It uses the public names of jsonbus,
jsonbus.survey for the statistics of the bus, and jsonbus.tls on its ports. README.md is its manual.
"""

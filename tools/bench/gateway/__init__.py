"""The benchmark of the gateway: a real one, with clients, webhooks and nodes around it.

command.py      the options, what is measured, the report
stage.py        the processes: a gateway and its helpers
clients.py      helpers with raw sockets: publishers, a webhook, readers
nodes.py        helpers on the bus: a publisher and a subscriber
http_alone.py   the HTTP side of a gateway with a hub that does nothing
"""

"""The gateway: programs that cannot join a multicast group reach the bus over TCP and HTTP.

    text clients --- text_server --+
    HTTP clients --- app ----------+--- hub --- AsyncBus --- the bus
    webhooks ------- webhooks -----+
                        |
                     webhook_ledger --- webhook_store (SQLite)

Everything runs in one event loop, but for the thread that commits to the store. `gateway.Gateway`
puts the parts together.
"""

"""The benchmark of the bus: publishers and subscribers of many systems, each a process.

command.py           the options, the order of the workloads, the report
floods.py            throughput, fan-out, large values; the highest rate without loss
calm.py              a low rate: delays, CPU, waits and system calls per message
alone.py             one side at a time: suppressed publishes, start, unwanted messages, memory
sealed.py            a sealed bus beside an open one, and what forgeries cost it
growth.py            cost by number of topics and of nodes
growth_node.py       cost by number of subscriptions, and of buses in one process
idle.py              cost of nodes that do nothing, by their number
overview.py          the table of the READMEs
run.py               the processes of one run: started, asked, ended
worker.py            such a process
spec.py              what it is told, and what it publishes
flow.py              how a publisher is kept from overrunning its subscribers; counting
publish.py           what a publisher can be asked to do; publish_tasks.py in an event loop
floor.py             raw sockets: the least that any system does
jsonbus_threads.py   `Bus`
jsonbus_tasks.py     `AsyncBus`
peers.py             pyzmq, zenoh, LCM, NATS
"""

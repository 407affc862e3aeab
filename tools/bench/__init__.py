"""Benchmarks: each measures jsonbus against a floor, in the same run and on the same machine.

__main__.py    `python3 -m tools.bench NAME`: finds the benchmark, and a Python that can run it
arena.py       where a benchmark takes place: a private network namespace, or loopback
network.py     hosts for its processes, joined by veth
child.py       a process of a benchmark that is asked things, by lines of JSON;
               worker.py is its far end
measures.py    what is measured, against which floor, and which target is to be reached
report.py      options and parts of the larger benchmarks; tables, ratios and verdicts

bus/           the whole bus: floods, latency, memory, growth; raw sockets and other systems
wire/          the parts of the way from publish to handler, without a network
channel/       channels, against asyncio's streams
gateway/       publishing by HTTP, text clients, webhooks
recording.py   what recording costs, and how exactly a replay keeps time
loss.py        reliable messages on a network that loses (in the lab)
spark/         bridge and source, beside Spark's own sources
"""

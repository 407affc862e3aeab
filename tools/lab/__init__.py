"""A network of hosts inside this machine: `sudo python3 -m tools.lab`.

Every host is a network namespace; a hub joins them. No interface of the machine is touched, and
nothing is left behind, however a lab ends.

__main__.py    the command
network.py     `Lab`: hosts and the hub between them
host.py        a host, and the processes on it
namespace.py   a network namespace, and whether this machine allows one
hub.py         joins the hosts: a bridge of the kernel, or relay.py
relay.py       a process that loses, delays, repeats and reorders frames
shape.py       how a link misbehaves
process.py     a process on a host: started, watched, stopped or killed
delivery.py    publishers and subscribers on hosts, and what arrived
traffic.py     such a publisher or subscriber
promises/      the promises of the bus, checked on real processes
"""

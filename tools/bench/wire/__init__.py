"""The benchmark of the way from publish to handler, in one process and without a network.

command.py        the options, the tables and their floors
loops.py          what is measured: a loop for each part of the way
scripted.py       a transport that gives a bus datagrams made before
instructions.py   instructions per message, by perf or valgrind
"""

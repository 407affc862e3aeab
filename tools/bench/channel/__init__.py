"""The benchmark of channels: two connected processes of each system.

command.py    what is measured, with its targets; the options
pair.py       the two processes of one system: started, asked, ended
side.py       what such a process is told, and what it sends
worker.py     such a process
threads.py    a blocking socket, and channels of a `Bus`
tasks.py      asyncio's streams, and channels of an `AsyncBus`
"""

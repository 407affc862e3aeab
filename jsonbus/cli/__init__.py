"""The command line: `jsonbus`, one file per command. It uses the public API and nothing else.

main.py     the entry point: closed streams, signals, the last line of defence
group.py    the list of commands, imported one by one; errors become exit codes
command.py  the options that every command shares
output.py   JSON lines for programs, readable lines for people
values.py   JSON text as people type it, and as we print it
"""

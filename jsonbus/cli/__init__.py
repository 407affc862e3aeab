"""The command line: `jsonbus`, one file per command. It uses the public API and nothing else.

main.py        the entry point: closed streams, the last line of defence
signals.py     Ctrl-C and its kin
group.py       the list of commands, imported one by one; errors become exit codes
exit_codes.py  what the process tells its caller
command.py     the options that every command shares, and the log
output.py      results: JSON lines for programs, readable lines for people
lib/message_printer.py   messages on their way from subscriptions to the output
lib/input_lines.py       lines of standard input, each a value to publish
values.py      JSON text as people type it, and as we print it
"""

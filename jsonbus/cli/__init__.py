"""The command line, `jsonbus`: README.md beside this file is its reference.

Results go to standard output, readable on a terminal and as JSON lines in a pipe; all else goes to
standard error. Ctrl-C, SIGTERM, SIGHUP and a closed pipe end every command cleanly. Files in the
order in which a call meets them:

main.py        the entry point: closed streams, exit codes, no traceback for Ctrl-C or a pipe
signals.py     Ctrl-C, SIGTERM and SIGHUP
group.py       the list of commands, imported when they are run; errors become exit codes
exit_codes.py  the exit codes
command.py     the options that every command has, and the log
commands/      one module per command
lib/           what several commands use
keys/          the keys of a sealed bus, beside commands/, which is full
manual/        help and completion: the command line explains itself
top/           the screen of `jsonbus top`

It uses the public names of jsonbus, and jsonbus.survey and jsonbus.recording. The commands doctor,
gateway, bridge and demo import the package of that name when they are run.
"""

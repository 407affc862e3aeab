"""Parts that several commands use. Files from input to output:

parameters.py        types of options; addresses as text
names.py             topics and patterns as arguments; hints for other systems' wildcards
values.py            JSON as people type it, and as commands print it
input_lines.py       the lines of standard input, as values to publish or to send
observer.py          joins the bus to look on: top, hz, bw, record --passive
measurement.py       the loop of hz and bw: a line per topic and interval
message_printer.py   prints the messages of a subscription: sub, node --sub
staying.py           stays for retained values: pub, replay
channel_copy.py      copies standard input to a channel, and the channel to standard output
copy_progress.py     progress of a channel's bytes
traffic_progress.py  progress of a recording or a replay
output.py            standard output: JSON lines in a pipe, tables on a terminal
escaping.py          text from the network, made safe and fitted for a terminal
numbers.py           counts, fractions and ages for people
log_file.py          --log-file

Called by the modules of commands/ and top/. Calls the public names of jsonbus, and jsonbus.survey.
"""

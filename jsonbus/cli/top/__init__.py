"""`jsonbus top`: the bus, live. Files in the order in which a picture meets them:

session.py       one run of the command: a screen, one picture, or one picture per interval
picture_json.py  a picture as JSON, for programs
screen.py        the loop of the screen: a picture a few times a second, and keys
state.py         what the keys do: table, order, filter, position, pause
columns.py       the columns of both tables
layout.py        picture and state as lines of text
preview.py       the beginning of a value as JSON
terminal.py      takes the terminal over and gives it back; writes only lines that changed
keys.py          bytes from a terminal to names of keys

Called by the command `top`. Calls jsonbus.survey for pictures and `Observer` to join the bus.
"""

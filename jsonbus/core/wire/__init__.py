"""The bytes on the wire: datagrams decoded to frames, and encoded from fields.

Decoding gives a valid frame or raises DatagramError, whatever the bytes are. The files, in the
order in which a received datagram meets them:

- `format.py`: the format in words, for readers and for other languages;
- `names.py`: reserved topics, the keys of headers, and the bounds that decoders check;
- `topics.py`: which topics and patterns are valid;
- `codec.py`: JSON to values and back;
- `decode.py`: the parsed JSON to a frame: header, messages, and which decoder takes the rest;
- `decode_control.py`: frames without messages, among them lists and presence;
- `fields.py`: checks of single fields, used by the decoders;
- `frames.py`: what datagrams decode to, one class per type;
- `items.py`: messages that wait to be packed, and their sequences;
- `encode_messages.py`: messages, batches and fragments, and the stamp of the sender;
- `encode.py`: all datagrams without messages, except the echoes that only the doctor sends.

Neighbours: everything in core stands on this package, which imports none of it.
"""

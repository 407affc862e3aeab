"""The sealed bus: who has no key hears nothing and says nothing.

README.md says what is protected and what is not, and has the format for other languages.

transport.py    SealedTransport: seals what is sent, opens what is received; reads the keys again
datagrams.py    the format of sealed datagrams; Sealer
opener.py       Opener: what is let in; repeats, recordings, clocks that are wrong
strangers.py    how much work senders that were never met may cause
keys.py         the keys of a bus, and the file they are in
key_file.py     key files made and changed, for `jsonbus keygen`
derivation.py   keys made from secrets

Between the network and the core: the core sees the same datagrams as on an open bus.

Imported only where a key file is set. The one place that imports `cryptography`: importing this
package without it raises ConfigError. Calls core/wire and transport/; called by frontend/.
"""

from __future__ import annotations

from importlib.util import find_spec

from jsonbus.errors import ConfigError

if find_spec("cryptography") is None:
    raise ConfigError("a sealed bus needs cryptography: pip install 'jsonbus[secure]'")

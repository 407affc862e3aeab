"""Turns bytes from a terminal into names of keys."""

from __future__ import annotations

import codecs
import re

#: What follows ESC -> the name of the key. Terminals differ, so some keys have several.
_SEQUENCES = {
    "[A": "up", "OA": "up",
    "[B": "down", "OB": "down",
    "[C": "right", "OC": "right",
    "[D": "left", "OD": "left",
    "[H": "home", "OH": "home", "[1~": "home", "[7~": "home",
    "[F": "end", "OF": "end", "[4~": "end", "[8~": "end",
    "[5~": "pageup", "[6~": "pagedown",
    "[Z": "backtab",
}  # fmt: skip

_CONTROLS = {
    "\t": "tab", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace",
    "\x0c": "redraw", "\x15": "clear",
}  # fmt: skip

# CSI and SS3 sequences, whole or still incomplete.
_SEQUENCE = re.compile(r"\[[0-?]*[ -/]*[@-~]|O[@-~]")
_INCOMPLETE = re.compile(r"(\[[0-?]*[ -/]*|O)?")


class KeyReader:
    """Takes bytes as they come, and returns keys: printable characters, or names."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """True while an ESC may be a key or the beginning of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that are complete."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        keys: list[str] = []
        place = 0
        while place < len(text):
            character = text[place]
            place += 1
            if character == "\x1b":
                found = _SEQUENCE.match(text, place)
                if found is not None:
                    place = found.end()
                    # An unknown sequence is ignored, not taken for its letters.
                    keys += filter(None, [_SEQUENCES.get(found[0])])
                elif _INCOMPLETE.fullmatch(text, place):
                    self._rest = text[place - 1 :]
                    return keys
                else:
                    keys.append("escape")
            elif character in _CONTROLS:
                keys.append(_CONTROLS[character])
            elif character.isprintable():
                keys.append(character)
        return keys

    def give_up(self) -> list[str]:
        """Nothing followed for a while: return the key ESC."""
        is_key = self._rest == "\x1b"
        self._rest = ""
        return ["escape"] if is_key else []

"""Explains why the system refused, in one sentence that says what to do about it."""

from __future__ import annotations

import errno

from .base import Interface


def explain_bind(group: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"UDP port {port} is held by a program that does not share it: stop that program "
            f"(`ss -ulpn sport = :{port}` names it), or use another port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"no permission to bind UDP port {port}: use a port above 1023, or run with more rights"
        )
    return f"cannot bind {group}:{port}: {error}"


def explain_join(group: str, interface: Interface, error: OSError) -> str:
    if error.errno == errno.ENOBUFS:
        remedy = "raise net.ipv4.igmp_max_memberships"
    elif error.errno in (errno.ENODEV, errno.EADDRNOTAVAIL):
        remedy = "the interface has just gone, so bring it up again or choose another"
    elif error.errno in (errno.EACCES, errno.EPERM):
        remedy = "run with more rights, or choose another interface"
    else:
        remedy = "choose another interface"
    return f"cannot join {group} on {interface.name} ({error.strerror}): {remedy}"


def explain_send(where: str, interface: Interface, size_bytes: int, error: OSError) -> str:
    if error.errno == errno.EMSGSIZE:
        return f"a datagram of {size_bytes:,} bytes is too large for {interface.name}: send less"
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "a firewall forbids it, so allow UDP to that group"
    else:
        remedy = "bring the interface up, or choose another"
    return f"cannot send to {where} on {interface.name} ({error.strerror}): {remedy}"

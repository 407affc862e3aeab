"""Recognizes the environment of a program by the traces that it leaves."""

from __future__ import annotations

from dataclasses import dataclass

MARKER_FILES = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Traces of the environment, as the system has them."""

    #: Those of MARKER_FILES that exist.
    files: tuple[str, ...] = ()
    #: /proc/1/cgroup and /proc/self/cgroup.
    cgroups: str = ""
    #: /proc/version.
    kernel: str = ""
    #: Vendor and product of the machine.
    hardware: str = ""


_CONTAINER_CGROUPS = {
    "kubepods": "Kubernetes",
    "docker": "Docker",
    "libpod": "Podman",
    "lxc": "LXC",
    "containerd": "containerd",
}

#: Words in the vendor and product of a virtual machine.
_VIRTUAL_HARDWARE = {
    "virtualbox": "VirtualBox",
    "innotek": "VirtualBox",
    "vmware": "VMware",
    "qemu": "QEMU",
    "kvm": "KVM",
    "xen": "Xen",
    "virtual machine": "Hyper-V",
    "parallels": "Parallels",
    "bochs": "Bochs",
    "amazon ec2": "Amazon EC2",
    "google compute": "Google Compute Engine",
}

# By prefix: no driver can be asked, and people keep the conventions.
_TUNNELS = ("tun", "tap", "wg", "ppp", "utun", "ipsec", "zt", "tailscale", "nordlynx", "proton")
_CONTAINER_BRIDGES = ("docker", "br-", "veth", "virbr", "cni", "podman", "lxc", "lxd", "flannel")
_WIRELESS = ("wl", "ath", "wifi")


def container_of(marks: Marks) -> str | None:
    """Return the kind of container that this is, or None."""
    for word, kind in _CONTAINER_CGROUPS.items():
        if word in marks.cgroups:
            return kind
    if "/run/.containerenv" in marks.files:
        return "Podman"
    return "Docker" if "/.dockerenv" in marks.files else None


def is_wsl(marks: Marks) -> bool:
    """Return whether this is Linux inside Windows."""
    return "microsoft" in marks.kernel.lower()


def virtual_machine_of(marks: Marks) -> str | None:
    """Return what runs this virtual machine; None for a real one, or one that does not report
    it.
    """
    hardware = marks.hardware.lower()
    return next((kind for word, kind in _VIRTUAL_HARDWARE.items() if word in hardware), None)


def is_tunnel(interface: str) -> bool:
    """Return whether an interface of this name belongs to a VPN."""
    return interface.startswith(_TUNNELS)


def is_container_bridge(interface: str) -> bool:
    """Return whether an interface of this name leads to containers or virtual machines of this
    machine.
    """
    return interface.startswith(_CONTAINER_BRIDGES)


def is_wireless(interface: str) -> bool:
    return interface.startswith(_WIRELESS)

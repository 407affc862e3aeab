"""What kind of place a program runs in, told from marks that such places leave."""

from __future__ import annotations

from dataclasses import dataclass

MARKER_FILES = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Signs of what kind of place the program runs in, as the system has them."""

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

#: Words in the vendor and product of a machine that is none.
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

# By how their names begin: nobody asks a driver for it, and people keep the customs.
_TUNNELS = ("tun", "tap", "wg", "ppp", "utun", "ipsec", "zt", "tailscale", "nordlynx", "proton")
_CONTAINER_BRIDGES = ("docker", "br-", "veth", "virbr", "cni", "podman", "lxc", "lxd", "flannel")
_WIRELESS = ("wl", "ath", "wifi")


def container_of(marks: Marks) -> str | None:
    """The kind of container that this is, or None."""
    for word, kind in _CONTAINER_CGROUPS.items():
        if word in marks.cgroups:
            return kind
    if "/run/.containerenv" in marks.files:
        return "Podman"
    return "Docker" if "/.dockerenv" in marks.files else None


def is_wsl(marks: Marks) -> bool:
    """Whether this is Linux inside Windows."""
    return "microsoft" in marks.kernel.lower()


def virtual_machine_of(marks: Marks) -> str | None:
    """What runs this virtual machine, or None for a real one, or one that does not tell."""
    hardware = marks.hardware.lower()
    return next((kind for word, kind in _VIRTUAL_HARDWARE.items() if word in hardware), None)


def is_tunnel(interface: str) -> bool:
    """Whether an interface of this name is a VPN's."""
    return interface.startswith(_TUNNELS)


def is_container_bridge(interface: str) -> bool:
    """Whether an interface of this name leads to containers or virtual machines of this machine."""
    return interface.startswith(_CONTAINER_BRIDGES)


def is_wireless(interface: str) -> bool:
    return interface.startswith(_WIRELESS)

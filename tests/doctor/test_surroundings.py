from __future__ import annotations

import pytest

from jsonbus.doctor.surroundings import (
    Marks,
    container_of,
    is_container_bridge,
    is_tunnel,
    is_wireless,
    is_wsl,
    virtual_machine_of,
)


@pytest.mark.parametrize(
    ("marks", "container"),
    [
        (Marks(), None),
        (Marks(cgroups="0::/user.slice/user-1000.slice\n"), None),
        (Marks(files=("/.dockerenv",)), "Docker"),
        (Marks(files=("/run/.containerenv",)), "Podman"),
        (Marks(cgroups="12:pids:/docker/0123456789ab\n"), "Docker"),
        (
            Marks(cgroups="0::/kubepods.slice/kubepods-burstable.slice/docker-01.scope"),
            "Kubernetes",
        ),
        (Marks(cgroups="0::/lxc.payload.web"), "LXC"),
    ],
)
def test_a_container_is_known_by_its_marks(marks: Marks, container: str | None) -> None:
    assert container_of(marks) == container


def test_linux_inside_windows_is_known_by_its_kernel() -> None:
    assert is_wsl(Marks(kernel="Linux version 5.15.90.1-microsoft-standard-WSL2 (gcc …)"))
    assert not is_wsl(Marks(kernel="Linux version 6.18.0 (gcc …)"))


@pytest.mark.parametrize(
    ("hardware", "kind"),
    [
        ("", None),
        ("LENOVO 20XW0026GE", None),
        ("QEMU Standard PC (Q35 + ICH9, 2009)", "QEMU"),
        ("innotek GmbH VirtualBox", "VirtualBox"),
        ("VMware, Inc. VMware7,1", "VMware"),
        ("Microsoft Corporation Virtual Machine", "Hyper-V"),
        ("Amazon EC2 t3.small", "Amazon EC2"),
    ],
)
def test_a_virtual_machine_is_known_by_its_hardware(hardware: str, kind: str | None) -> None:
    assert virtual_machine_of(Marks(hardware=hardware)) == kind


@pytest.mark.parametrize("name", ["tun0", "wg0", "tailscale0", "ppp0", "utun3", "ztabc"])
def test_a_vpn_is_known_by_its_name(name: str) -> None:
    assert is_tunnel(name) and not is_container_bridge(name)


@pytest.mark.parametrize("name", ["docker0", "br-0123456789ab", "virbr0", "cni0", "veth12"])
def test_a_bridge_to_containers_is_known_by_its_name(name: str) -> None:
    assert is_container_bridge(name) and not is_tunnel(name)


@pytest.mark.parametrize("name", ["eth0", "enp3s0", "lo", "br0", "en0"])
def test_other_names_are_nothing_special(name: str) -> None:
    assert not (is_tunnel(name) or is_container_bridge(name) or is_wireless(name))
    assert is_wireless("wlp2s0")

"""The system call filter, run by an interpreter of its own kind of program instead of a kernel."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.sandbox.inside.filter import FORBIDDEN, SYSCALLS, bpf, supported

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000


def decide(code: bytes, number: int, arch: int, *args: int) -> int:
    """What the kernel does: classic BPF over struct seccomp_data (seccomp(2))."""
    padded = [a & (2**64 - 1) for a in (*args, *[0] * (6 - len(args)))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    lines, at, register = list(struct.iter_unpack("<HBBI", code)), 0, 0
    while True:
        kind, yes, no, value = lines[at]
        at += 1
        if kind == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif kind == 0x06:
            return value
        else:
            holds = {0x15: register == value, 0x25: register > value, 0x45: bool(register & value)}[kind]
            at += yes if holds else no


def says(machine: str, number: int, *args: int) -> str:
    found = decide(bpf(machine), number, ARCH[machine], *args)
    return "allow" if found == ALLOW else errno.errorcode[found & 0xFFFF]


@pytest.mark.parametrize("machine", ARCH)
def test_every_forbidden_call_fails_and_no_other(machine):
    column = list(ARCH).index(machine)
    forbidden = {pair[column] for pair in FORBIDDEN.values()} - {None}
    special = {numbers[machine] for name, numbers in SYSCALLS.items() if name != "capset"}
    for number in range(451):
        if number not in special:
            assert says(machine, number) == ("EPERM" if number in forbidden else "allow"), number


@pytest.mark.parametrize("machine", ARCH)
def test_calls_that_are_judged_by_their_arguments(machine):
    number = {name: numbers[machine] for name, numbers in SYSCALLS.items()}
    assert says(machine, number["clone"], 17) == "allow"
    assert says(machine, number["clone"], 0x3D0F00) == "allow"  # a thread of the C library
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert says(machine, number["clone"], 17 | 1 << bit) == "EPERM"
    assert says(machine, number["clone3"]) == "ENOSYS"
    for name in ("socket", "socketpair"):
        assert says(machine, number[name], 1, 1) == "allow"
        for family in (0, 2, 10, 16, 17, 38, 40, 44):
            assert says(machine, number[name], family, 1) == "EACCES"
    assert says(machine, number["ioctl"], 0, 0x5401) == "allow"
    assert says(machine, number["ioctl"], 0, 0x5412) == says(machine, number["ioctl"], 0, 0x541C) == "EPERM"


@pytest.mark.parametrize("machine", ARCH)
@given(number=st.integers(451, 2**32 - 1))
def test_calls_that_nobody_looked_at_do_not_exist(machine, number):
    assert says(machine, number) == "ENOSYS"


@pytest.mark.parametrize("machine", ARCH)
@given(arch=st.integers(0, 2**32 - 1), number=st.integers(0, 600))
def test_calls_by_another_door_kill(machine, arch, number):
    if arch != ARCH[machine]:
        assert decide(bpf(machine), number, arch) == KILL


def test_only_machines_whose_numbers_are_known():
    assert supported("x86_64")
    assert not supported("i686")
    with pytest.raises(OSError, match="riscv64"):
        bpf("riscv64")


def test_the_numbers_are_those_of_this_kernel():
    """Headers of the machine, where they are installed."""
    import platform
    import re
    from pathlib import Path

    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if platform.machine() != "x86_64" or not header.is_file():
        pytest.skip(f"{header} is not on this machine")
    known = {n: int(v) for n, v in re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())}
    for name, (number, _) in FORBIDDEN.items():
        assert known[name] == number
    for name, numbers in SYSCALLS.items():
        assert known[name] == numbers["x86_64"]

"""The system call filter: a classic BPF program, assembled here, that the kernel runs at every system call.

It forbids what a program under test has no business with and what has held most of the kernel's holes. A namespace
alone stops none of these: AF_VSOCK reaches the hypervisor from an empty network namespace, memfd_create and System V
shared memory take memory that no rlimit counts.
"""

from __future__ import annotations

import errno
import struct

SYSCALLS: dict[str, dict[str, int]] = {
    name: {"x86_64": x86, "aarch64": arm}
    for name, x86, arm in (
        ("clone", 56, 220), ("clone3", 435, 435), ("capset", 126, 91), ("socket", 41, 198), ("socketpair", 53, 199),
        ("ioctl", 16, 29),
    )
}  # fmt: skip
"""Numbers of the system calls that need more than a plain no, and of those that assay itself makes."""

FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "move_pages": (279, 239), "migrate_pages": (256, 238),
    # large and often broken corners of the kernel
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "modify_ldt": (154, None), "personality": (135, 92),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "lookup_dcookie": (212, 18),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None),
    "ioperm": (173, None), "vhangup": (153, 58), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), 
    # memory that outlives a process or that no limit counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}  # fmt: skip
"""System calls that fail with EPERM, as numbers for x86_64 and aarch64 (None: it has none)."""

_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_LAST = 450
"""Newest system call that was looked at: later ones do not exist for the program."""
_NEW = 0x7E02_0000
"""All CLONE_NEW* flags of clone()."""
_AF_UNIX = 1
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the terminal of someone else

_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_LOAD, _EQUAL, _GREATER, _AND_SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NR, _ARCHITECTURE, _ARG0, _ARG1 = 0, 4, 16, 24


def supported(machine: str) -> bool:
    """Whether the filter knows the system calls of this machine."""
    return machine in _ARCH


def bpf(machine: str) -> bytes:
    """The filter for ``machine`` (x86_64 or aarch64), eight bytes an instruction."""
    if machine not in _ARCH:
        raise OSError(errno.ENOSYS, f"assay's sandbox knows x86_64 and aarch64, not {machine}")
    code: list[tuple[int, int, int, int]] = []

    def op(kind: int, value: int, yes: int = 0, no: int = 0) -> None:
        code.append((kind, yes, no, value))

    def no(number: int) -> int:
        return _ERRNO | number

    def when(name: str, load: int, tests: list[tuple[int, int]], otherwise: int) -> None:
        """Judge one system call by one argument: (jump, value) pairs that forbid or allow, then ``otherwise``."""
        body: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, load)]
        for test, value in tests:
            body += [(test, 0, 1, value), (_RETURN, 0, 0, _ALLOW if otherwise != _ALLOW else no(errno.EPERM))]
        body.append((_RETURN, 0, 0, otherwise))
        op(_EQUAL, SYSCALLS[name][machine], 0, len(body))
        code.extend(body)

    op(_LOAD, _ARCHITECTURE)
    op(_EQUAL, _ARCH[machine], 1, 0)
    op(_RETURN, _KILL)
    op(_LOAD, _NR)
    op(_GREATER, _LAST, 0, 1)  # x32 calls too: their numbers begin at 0x40000000
    op(_RETURN, no(errno.ENOSYS))
    op(_EQUAL, SYSCALLS["clone3"][machine], 0, 1)
    op(_RETURN, no(errno.ENOSYS))  # its flags lie in memory, unseen here; the C library goes back to clone
    when("clone", _ARG0, [(_AND_SET, _NEW)], _ALLOW)
    when("socket", _ARG0, [(_EQUAL, _AF_UNIX)], no(errno.EACCES))
    when("socketpair", _ARG0, [(_EQUAL, _AF_UNIX)], no(errno.EACCES))
    when("ioctl", _ARG1, [(_EQUAL, value) for value in _TERMINAL], _ALLOW)
    column = 0 if machine == "x86_64" else 1
    code += _search(sorted(number for pair in FORBIDDEN.values() if (number := pair[column]) is not None))
    return b"".join(struct.pack("<HBBI", *line) for line in code)


def _search(numbers: list[int]) -> list[tuple[int, int, int, int]]:
    """Instructions that forbid ``numbers`` (sorted) and allow all else, by halving: the kernel tries every number once
    for each process that gets the filter, so its length is part of what a run costs.
    """
    if len(numbers) > 4:
        middle = len(numbers) // 2
        low, high = _search(numbers[: middle + 1]), _search(numbers[middle + 1 :])
        return [(_GREATER, len(low), 0, numbers[middle]), *low, *high]
    tests = [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    return [*tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]

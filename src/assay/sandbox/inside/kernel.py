"""System calls that Python has no function for: namespaces, mounts, capabilities, the system call filter."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

from .filter import SYSCALLS, bpf

NEW_PID, NEW_NS, NEW_USER = 0x2000_0000, 0x0002_0000, 0x1000_0000
READ_ONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
_PRIVATE, _REC = 1 << 18, 1 << 14
_SIGCHLD = 17
_SET_DUMPABLE, _SET_SECCOMP, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS, _AMBIENT = 4, 22, 36, 38, 47

# PyDLL keeps the interpreter lock: the child of a bare clone() returns holding it.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def _checked(value: int, what: str) -> int:
    if value < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return value


def clone(flags: int) -> int:
    """``fork`` into new namespaces: 0 in the child, the child's process id in the parent."""
    number = SYSCALLS["clone"][platform.machine()]
    zero = ctypes.c_ulong(0)
    return _checked(
        _libc.syscall(ctypes.c_long(number), ctypes.c_ulong(flags | _SIGCHLD), zero, zero, zero, zero), "clone"
    )


def own_user_namespace(uid: int) -> None:
    """Give this process every capability over namespaces of its own making, as user ``uid`` in there, and new mounts.

    The user outside stays what it is: nothing that it could not touch before becomes touchable.
    """
    outer_uid, outer_gid = os.getuid(), os.getgid()
    set_dumpable(True)  # else the maps below belong to root
    _checked(_libc.unshare(NEW_USER | NEW_NS), "a user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {outer_uid} 1"), ("gid_map", f"{uid} {outer_gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount(kind: str, where: str, flags: int, options: str = "") -> None:
    """Mount a file system that needs no device."""
    _checked(_libc.mount(kind.encode(), where.encode(), kind.encode(), flags, options.encode()), f"mount {where}")


def mount_proc(where: str = "/proc") -> None:
    """A fresh, read-only /proc of this process id namespace; processes only, where the kernel can (5.8)."""
    flags = NOSUID | NODEV | NOEXEC | READ_ONLY
    try:
        mount("proc", where, flags, "subset=pid")
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
        mount("proc", where, flags)


def private_mounts() -> None:
    """What is mounted here from now on is seen nowhere else."""
    _checked(_libc.mount(b"none", b"/", None, _PRIVATE | _REC, None), "private mounts")


def set_dumpable(on: bool) -> None:
    """Whether processes of the same user may trace this one and read its memory through /proc."""
    _checked(_libc.prctl(_SET_DUMPABLE, int(on), 0, 0, 0), "PR_SET_DUMPABLE")


def become_subreaper() -> None:
    """Orphans below this process become its children, so that it can end them."""
    _checked(_libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def drop_capabilities() -> None:
    """No capability is left, and no program that is executed from here on can gain one."""
    _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    _libc.prctl(_AMBIENT, 4, 0, 0, 0)  # PR_CAP_AMBIENT_CLEAR_ALL
    header = (ctypes.c_uint32 * 2)(0x2008_0522, 0)
    sets = (ctypes.c_uint32 * 6)()
    number = SYSCALLS["capset"][platform.machine()]
    _checked(_libc.syscall(ctypes.c_long(number), ctypes.byref(header), ctypes.byref(sets)), "capset")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


CODE = bpf(platform.machine())
_FILTER = _Program(len(CODE) // 8, CODE)


def filter_system_calls() -> None:
    """Install the filter of :mod:`.filter`; it holds for this process and all its children, for good."""
    address = ctypes.addressof(_FILTER)
    _checked(_libc.prctl(_SET_SECCOMP, 2, address, 0, 0), "the system call filter")

# ruff: noqa: E501  (the programs are data)
"""Programs that try to get out, to hang the machine or to spoil others: what the battery runs.

Each says ``ESCAPED`` when an attempt succeeds and ``held`` at its end when none did, unless it is meant to be killed.
``PRELUDE`` is put before every Python source.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = '''
import ctypes, errno, os, platform, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"

def syscall(x86, arm, *args):
    """A bare system call: raises OSError as Python does."""
    value = libc.syscall(ctypes.c_long(x86 if X86 else arm), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value

def attempt(what, do, *args):
    """Say ESCAPED if it works, which error if not."""
    try:
        value = do(*args)
    except OSError as problem:
        print("held", what, errno.errorcode.get(problem.errno, problem.errno))
    else:
        print("ESCAPED", what, value)

def unseen(*paths):
    for path in paths:
        attempt("read " + path, lambda: open(path, "rb").read(100))
'''


@dataclass(frozen=True)
class Hostile:
    """One program: how it may end, and what it must have said."""

    name: str
    source: str
    statuses: tuple[str, ...] = ("ok",)
    says: tuple[str, ...] = ("held",)
    language: str = "python"
    cpu_seconds: float = 0.5


def _each(kind: str, errors: str, attacks: dict[str, str]) -> list[Hostile]:
    """Attacks that must fail with one of ``errors`` (words, separated by blanks)."""
    return [Hostile(f"{kind}: {name}", code, says=tuple(errors.split())) for name, code in attacks.items()]


KILLED = ("time limit", "memory limit", "runtime error", "output limit")

RESOURCES = [
    Hostile("fork bomb", "while True:\n    try: os.fork()\n    except OSError: pass", KILLED, ()),
    Hostile("fork bomb that lets its parents die", "while True:\n    try:\n        if os.fork(): os._exit(0)\n    except OSError: pass", ("ok", *KILLED), ()),
    Hostile("fork bomb in C++", "#include <unistd.h>\nint main(){for(;;) fork();}", KILLED, (), "cpp"),
    Hostile("thread bomb", "n = 0\ntry:\n    while True:\n        threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1\nexcept RuntimeError:\n    print('held' if n < 24 else 'ESCAPED', n)"),
    Hostile("memory bomb", "x = []\nwhile True: x.append(bytearray(1 << 20))", ("memory limit",), (), cpu_seconds=4),
    Hostile("memory bomb in C++", "#include <cstdlib>\n#include <cstring>\nint main(){for(;;){void*p=malloc(1<<20); if(!p) abort(); memset(p,1,1<<20);}}", ("memory limit", "runtime error"), (), "cpp", cpu_seconds=4),
    Hostile("memory bomb spread over children", "for _ in range(10):\n    if os.fork() == 0:\n        x = bytearray(os.urandom(1)) * (60 << 20); time.sleep(60)\ntime.sleep(60)", ("memory limit",), (), cpu_seconds=4),
    Hostile("memory by shared mappings", "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24)); x[-1].write(b'x' * (1 << 24))", ("memory limit", "runtime error"), (), cpu_seconds=4),
    Hostile("memory by pipes", "held = []\ntry:\n    while True:\n        r, w = os.pipe(); os.set_blocking(w, False); held += [r, w]\n        try:\n            while True: os.write(w, bytes(1 << 16))\n        except BlockingIOError: pass\nexcept OSError as e: print('held', e.errno)"),
    Hostile("memory by sockets", "held = []\ntry:\n    while True:\n        pair = socket.socketpair(); held += pair; pair[0].setblocking(False)\n        try:\n            while True: pair[0].send(bytes(1 << 16))\n        except BlockingIOError: pass\nexcept OSError as e: print('held', e.errno)"),
    Hostile("disc filler", "try:\n    n = 0\n    while True: open(f'f{n}', 'wb').write(bytes(1 << 20)); n += 1\nexcept OSError as e: print('held', n) if n < 10 else print('ESCAPED', n)"),
    Hostile("disc filler in /dev/shm", "try:\n    n = 0\n    while True: open(f'/dev/shm/f{n}', 'wb').write(bytes(1 << 20)); n += 1\nexcept OSError as e: print('held', n) if n < 10 else print('ESCAPED', n)"),
    Hostile("one large file", "attempt('write', lambda: [open('f', 'ab').write(bytes(1 << 20)) for _ in range(64)])", says=("held write",)),
    Hostile("one large sparse file", "attempt('truncate', lambda: os.truncate('main.py', 1 << 40))", says=("held truncate EFBIG",)),
    Hostile("endless small files", "try:\n    n = 0\n    while True: open(f'g{n}', 'w').close(); n += 1\nexcept OSError as e: print('held', n)", ("ok", "time limit"), ()),
    Hostile("endless folders in folders", "try:\n    while True: os.mkdir('d'); os.chdir('d')\nexcept OSError as e: print('held')", ("ok", "time limit"), ()),
    Hostile("endless output", "while True: os.write(1, b'x' * 65536)", ("output limit",), ()),
    Hostile("endless output of children", "for _ in range(5): os.fork()\nwhile True: os.write(1, b'x' * 65536)", ("output limit",), ()),
    Hostile("huge stderr", "while True: os.write(2, b'x' * 65536)", ("output limit",), ()),
    Hostile("busy for ever", "while True: pass", ("time limit",), ()),
    Hostile("busy in C for ever", "import re; re.match('(a+)+$', 'a' * 60 + 'b')", ("time limit",), ()),
    Hostile("sleep past the limit", "time.sleep(600)", ("time limit",), ()),
    Hostile("stop oneself", "os.kill(os.getpid(), signal.SIGSTOP)", ("time limit",), ()),
    Hostile("ignore every signal and sleep", "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: time.sleep(1)", ("time limit",), ()),
    Hostile("ignore SIGXCPU and work", "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", ("time limit",), ()),
    Hostile("processor time spread over children", "while True:\n    p = os.fork()\n    if p == 0:\n        t = time.process_time()\n        while time.process_time() - t < 0.05: pass\n        os._exit(0)\n    os.waitpid(p, 0)", ("time limit",), ()),
    Hostile("a daemon that outlives its parent", "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: time.sleep(1)\n    os._exit(0)\nprint('held')"),
    Hostile("a daemon that holds standard output open", "if os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)\nprint('held', flush=True); os._exit(0)"),
    Hostile("zombie storm", "n = 0\ntry:\n    while n < 1000:\n        if os.fork() == 0: os._exit(0)\n        n += 1\nexcept OSError: pass\nprint('held' if n < 40 else 'ESCAPED', n)"),
    Hostile("orphan storm", "for _ in range(40):\n    p = os.fork()\n    if p == 0:\n        try: os.fork()\n        except OSError: pass\n        os._exit(0)\n    os.waitpid(p, 0)\nprint('held')", ("ok", "runtime error"), ()),
    Hostile("all file numbers", "try:\n    while True: os.dup(0)\nexcept OSError as e: print('held', e.errno)"),
    Hostile("endless recursion in C++", "int f(volatile int x){volatile char y[1000]; y[0]=x; return f(x+1)+y[0];} int main(){return f(0);}", ("runtime error",), (), "cpp"),
    Hostile("endless recursion in Python", "sys.setrecursionlimit(1 << 30)\ndef f(): f()\nf()", KILLED, ()),
    Hostile("timer storm", "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)\nwhile True: pass", ("time limit",), ()),
    Hostile("locked memory", "attempt('mlockall', lambda: syscall(151, 230, 3))", says=("held mlockall",)),
    Hostile("deeply nested source", "(" * 5000 + ")" * 5000, ("compile error",), ()),
    Hostile("source nested by operators", "x = " + "-" * 200_000 + "1", ("compile error", *KILLED), ()),
    Hostile("endless include", '#include "/dev/zero"\nint main(){}', ("compile error",), (), "cpp"),
    Hostile("endless templates", "template<int n> struct A { static const int v = A<n+1>::v; }; int main(){ return A<0>::v; }", ("compile error",), (), "cpp"),
    Hostile("include of a file of the machine", '#include "/etc/shadow"\nint main(){}', ("compile error",), (), "cpp"),
]  # fmt: skip

SIGNALS = [
    Hostile("kill the parent", "for n in (9, 15, 19, 2, 1, 6, 11):\n    try: os.kill(os.getppid(), n)\n    except OSError: pass\nprint('held')"),
    Hostile("kill process 1", "for n in range(1, 65):\n    try: os.kill(1, n)\n    except OSError: pass\ntime.sleep(0.05); print('held')"),
    Hostile("kill everybody", "attempt('all', os.kill, -1, 9)"),
    Hostile("kill the process group", "os.killpg(0, 9)", ("runtime error",), ()),
    Hostile("kill by guessed numbers", "for n in range(2, 5000):\n    if n != os.getpid():\n        try: os.kill(n, 9); print('ESCAPED', n)\n        except OSError: pass\nprint('held')"),
]  # fmt: skip

FILES = [
    Hostile("accounts and secrets of the machine", "unseen('/etc/shadow', '/etc/passwd', '/etc/machine-id', '/root/.bashrc', '/root/.ssh/id_rsa', '/var/run/docker.sock')"),
    Hostile("home folders", "for p in ('/home', '/work', '/mnt', '/media', '/opt', '/srv', '/var', '/boot', '/usr/local', '/usr/src'):\n    attempt(p, os.listdir, p)"),
    Hostile("this repository", "unseen(*[p for p in {paths!r}])"),
    Hostile("installed packages", "import glob\nfor p in sys.path + glob.glob('/usr/lib/python3*/*-packages'):\n    if p.endswith('-packages'): print('ESCAPED' if os.listdir(p) else 'held', p)\nprint('held')"),
    Hostile("process 1 through /proc", "unseen(*['/proc/1/' + n for n in ('environ', 'mem', 'maps', 'auxv', 'stack', 'smaps')])\nattempt('fd', os.listdir, '/proc/1/fd'); attempt('root', os.listdir, '/proc/1/root'); attempt('cwd', os.listdir, '/proc/1/cwd')\nfor n in range(200):\n    attempt(f'fd {n}', lambda: os.open(f'/proc/1/fd/{n}', os.O_RDWR))"),
    Hostile("the machine through /proc", "unseen('/proc/cmdline', '/proc/kcore', '/proc/kallsyms', '/proc/sys/kernel/random/boot_id', '/proc/net/tcp', '/proc/keys', '/proc/version', '/proc/mounts2')"),
    Hostile("switches of the machine in /proc", "for p in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches', '/proc/1/oom_score_adj'):\n    attempt(p, lambda: open(p, 'w').write('1'))"),
    Hostile("less likely to be killed for memory", "attempt('oom', lambda: open('/proc/self/oom_score_adj', 'w').write('-1000'))"),
    Hostile("other processes", "seen = [int(n) for n in os.listdir('/proc') if n.isdigit()]\nprint('held' if max(seen) < 10 else 'ESCAPED', seen)"),
    Hostile("/sys", "print('ESCAPED' if os.path.isdir('/sys') and os.listdir('/sys') else 'held'); unseen('/sys/class/dmi/id/product_uuid', '/sys/fs/cgroup/cgroup.procs')"),
    Hostile("devices", "for n in ('mem', 'kmsg', 'vda', 'sda', 'tty', 'console', 'pts/0', 'ptmx', 'fuse', 'kvm', 'vsock', 'net/tun', 'loop0', 'nvidia0'):\n    attempt(n, lambda: os.open('/dev/' + n, os.O_RDWR))"),
    Hostile("a device of one's own", "attempt('mknod', lambda: os.mknod('disc', 0o600 | 0o060000, os.makedev(254, 0)))", says=("held mknod",)),
    Hostile("write to the system", "for p in ('/x', '/usr/x', '/usr/bin/x', '/etc/x', '/dev/x', '/bin/sh', '/run/x', '/proc/x', sys.prefix + '/lib/x', os.__file__, '/run/assay-box/inside/runner.py'):\n    attempt(p, lambda: open(p, 'a').write('x'))"),
    Hostile("hard links to the system", "attempt('link', os.link, '/usr/bin/env', 'env'); attempt('back', os.link, 'main.py', '/usr/bin/x'); attempt('exe', os.link, '/proc/self/exe', 'exe')"),
    Hostile("symbolic links out", "os.symlink('/', 'root'); unseen('root/etc/shadow'); attempt('write', lambda: open('root/usr/x', 'w')); attempt('up', os.listdir, '../../../../../../work')"),
    Hostile("permissions of the system", "attempt('chmod', os.chmod, '/usr/bin/env', 0o777); attempt('chown', os.chown, 'main.py', 0, 0); attempt('utime', os.utime, '/usr/bin/env')"),
    Hostile("keys in the environment", "import gc\nprint('ESCAPED' if '{key}' in repr(os.environ) + open('/proc/self/environ').read() else 'held', sorted(os.environ))"),
    Hostile("keys in memory", "found = [o for o in __import__('gc').get_objects() if isinstance(o, dict) and '{key}' in o.values()]\nprint('ESCAPED' if found else 'held')"),
    Hostile("file numbers that are open", "seen = []\nfor n in range(3, 4096):\n    try: os.fstat(n); seen.append((n, os.readlink(f'/proc/self/fd/{n}')))\n    except OSError: pass\nprint('ESCAPED' if seen else 'held', seen)"),
    Hostile("change what stdin holds", "attempt('write', os.write, 0, b'x'); attempt('truncate', os.ftruncate, 0, 0); attempt('reopen', lambda: os.write(os.open('/proc/self/fd/0', os.O_RDWR), b'x'))"),
    Hostile("memory that no process holds", "attempt('memfd', lambda: os.memfd_create('x')); attempt('memfd_secret', lambda: syscall(447, 447, 0))"),
]  # fmt: skip

NETWORK = [
    Hostile("TCP to this machine", "attempt('tcp', lambda: socket.create_connection(('127.0.0.1', {port}), 2))"),
    Hostile("a TCP listener", "attempt('listen', lambda: socket.create_server(('0.0.0.0', 0)))"),
    Hostile("UDP", "attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53)))"),
    Hostile("IPv6", "attempt('tcp6', lambda: socket.create_connection(('::1', {port}), 2))"),
    Hostile("names", "attempt('dns', socket.getaddrinfo, 'example.org', 80)"),
    Hostile("raw and packet sockets", "attempt('icmp', lambda: socket.socket(2, socket.SOCK_RAW, 1)); attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW))"),
    Hostile("netlink", "attempt('netlink', lambda: socket.socket(16, socket.SOCK_RAW, 0))"),
    Hostile("vsock, which no namespace holds", "attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM)); attempt('pair', lambda: socket.socketpair(40))"),
    Hostile("every other family", "for n in range(2, 50): attempt(n, lambda: socket.socket(n, socket.SOCK_DGRAM))"),
    Hostile("abstract sockets of this machine", "s = socket.socket(socket.AF_UNIX); attempt('abstract', s.connect, '\\0{abstract}')"),
    Hostile("a socket of this machine by path", "s = socket.socket(socket.AF_UNIX); attempt('path', s.connect, '{socket}')"),
    Hostile("a shell through the network", "print('held', os.system('exec 3<>/dev/tcp/127.0.0.1/{port} && echo ESCAPED') != 0)"),
]  # fmt: skip

KERNEL = [
    *_each("EPERM", "held EPERM", {
        "ptrace of process 1": "attempt('attach', lambda: syscall(101, 117, 16, 1, 0, 0)); attempt('seize', lambda: syscall(101, 117, 0x4206, 1, 0, 0)); attempt('me', lambda: syscall(101, 117, 0, 0, 0, 0))",
        "memory of another process": "b = ctypes.create_string_buffer(64); attempt('readv', lambda: syscall(310, 270, 1, b, 1, b, 1, 0)); attempt('writev', lambda: syscall(311, 271, 1, b, 1, b, 1, 0))",
        "file numbers of another process": "p = os.pidfd_open(os.getpid()); attempt('getfd', lambda: syscall(438, 438, p, 0, 0))",
        "unshare": "for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000): attempt(hex(flag), lambda: syscall(272, 97, flag))",
        "clone into a user namespace": "attempt('clone', lambda: syscall(56, 220, 0x10000000 | 17, 0, 0, 0, 0))",
        "setns": "p = os.pidfd_open(os.getpid()); attempt('setns', lambda: syscall(308, 268, p, 0x20000))",
        "mount": "attempt('mount', lambda: syscall(165, 40, b'none', b'/tmp', b'tmpfs', 0, 0)); attempt('umount', lambda: syscall(166, 39, b'/tmp', 2)); attempt('fsopen', lambda: syscall(430, 430, b'tmpfs', 0)); attempt('open_tree', lambda: syscall(428, 428, -100, b'/', 1))",
        "another root": "attempt('pivot_root', lambda: syscall(155, 41, b'/', b'/')); attempt('chroot', os.chroot, '/tmp')",
        "io_uring": "b = ctypes.create_string_buffer(256); attempt('setup', lambda: syscall(425, 425, 8, b)); attempt('enter', lambda: syscall(426, 426, 0, 1, 0, 0, 0, 0))",
        "bpf": "b = ctypes.create_string_buffer(256); attempt('bpf', lambda: syscall(321, 280, 0, b, 72))",
        "perf_event_open": "b = ctypes.create_string_buffer(256); attempt('perf', lambda: syscall(298, 241, b, 0, -1, -1, 0))",
        "userfaultfd": "attempt('userfaultfd', lambda: syscall(323, 282, 1))",
        "kernel keys": "attempt('keyctl', lambda: syscall(250, 219, 0, -3, 0)); attempt('add_key', lambda: syscall(248, 217, b'user', b'x', b'y', 1, -3))",
        "files by handle": "b = ctypes.create_string_buffer(256); attempt('handle', lambda: syscall(304, 265, -100, b, 0))",
        "kernel modules": "attempt('init_module', lambda: syscall(175, 105, 0, 0, b'')); attempt('kexec', lambda: syscall(246, 104, 0, 0, 0, 0))",
        "reboot and clock": "attempt('reboot', lambda: syscall(169, 142, 0xfee1dead, 672274793, 0x1234567, 0)); attempt('clock', lambda: time.clock_settime(time.CLOCK_REALTIME, 0)); attempt('name', lambda: socket.sethostname('x'))",
        "the kernel's log": "attempt('syslog', lambda: syscall(103, 116, 3, ctypes.create_string_buffer(99), 99))",
        "System V memory, queues and semaphores": "attempt('shm', lambda: syscall(29, 194, 7, 4096, 0o1777)); attempt('msg', lambda: syscall(68, 186, 7, 0o1777)); attempt('sem', lambda: syscall(64, 190, 7, 1, 0o1777))",
        "POSIX message queues": "attempt('mq', lambda: syscall(240, 180, b'x', 0o102, 0o600, 0))",
        "another personality": "attempt('personality', lambda: syscall(135, 92, 0x0040000))",
        "become root": "attempt('setuid', os.setuid, 0); attempt('setgid', os.setgid, 0); attempt('setgroups', os.setgroups, [0])",
        "typing into a terminal": "import fcntl; attempt('TIOCSTI', lambda: fcntl.ioctl(0, 0x5412, b'x')); attempt('TIOCLINUX', lambda: fcntl.ioctl(0, 0x541C, b'x'))",
    }),
    Hostile("clone3, whose flags no filter sees", "b = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17); attempt('clone3', lambda: syscall(435, 435, b, 88))", says=("held clone3 ENOSYS",)),
    Hostile("system calls newer than the filter", "for n in range(451, 600): attempt(n, lambda: syscall(n, n, 0, 0, 0, 0, 0, 0))", says=("held 451 ENOSYS", "held 599 ENOSYS")),
    Hostile("system calls of the x32 kind", "for n in (39, 41, 101, 520): attempt(n, lambda: syscall(0x40000000 + n, 0x40000000 + n, 0))", says=("held 39 ENOSYS", "held 101 ENOSYS")),
    Hostile("system calls of the 32-bit kind", '#include <cstdio>\nint main(){\n#ifdef __x86_64__\n  int r; asm volatile("int $0x80" : "=a"(r) : "a"(20)); printf("ESCAPED %d", r);\n#else\n  __builtin_trap();\n#endif\n}', ("runtime error",), (), "cpp"),
    Hostile("capabilities", "text = open('/proc/self/status').read()\nprint('held' if all(line.split()[1].strip('0') == '' for line in text.splitlines() if line[:6] in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb')) and 'NoNewPrivs:\\t1' in text and 'Seccomp:\\t2' in text else 'ESCAPED', text)"),
    Hostile("capabilities regained", "h = (ctypes.c_uint32 * 2)(0x20080522, 0); s = (ctypes.c_uint32 * 6)(*[0xffffffff] * 6); attempt('capset', lambda: syscall(126, 91, h, s)); attempt('ambient', lambda: syscall(157, 167, 47, 2, 21, 0, 0) )"),
    Hostile("programs with a set-user bit", "import glob, subprocess\nprint(subprocess.run(['su', '-c', 'id -u'], capture_output=True, stdin=subprocess.DEVNULL).stdout)\nprint('held' if os.geteuid() == os.getuid() == 1000 else 'ESCAPED')\nfound = subprocess.run([sys.executable, '-c', 'import os; print(os.geteuid())'], capture_output=True, text=True).stdout\nprint('ESCAPED' if found.strip() == '0' else 'held', found)"),
    Hostile("limits raised", "import resource\nfor which in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):\n    try: resource.setrlimit(which, (1 << 40, 1 << 40)); print('ESCAPED', which)\n    except (OSError, ValueError): print('held', which)"),
    Hostile("the filter removed", "attempt('prctl', lambda: syscall(157, 167, 22, 0, 0, 0, 0)); attempt('nnp', lambda: syscall(157, 167, 38, 0, 0, 0, 0))"),
    Hostile("priority", "attempt('nice', os.nice, -5); attempt('fifo', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))"),
    Hostile("escape sequences for a terminal", "print('\\x1b]0;title\\x07\\x1b[2J\\x1bc\\x1b[6n\\x9b1m\\x00\\r held')"),
]  # fmt: skip

ALL = [*RESOURCES, *SIGNALS, *FILES, *NETWORK, *KERNEL]

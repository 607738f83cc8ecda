/* The keeper of keeper.py in C: the same world, limits and report, for a tenth of the processor time.
 *
 * A server process calls assay_serve(). It starts a keeper in new namespaces with CLONE_VM | CLONE_VFORK: the keeper
 * borrows the server's memory, so nothing is copied, while the server sleeps. Everything that does not depend on the
 * request is done before one comes: the keeper makes the run's world and forks the program's process (Python), which
 * gives up its rights and waits. So a run finds its own fresh namespaces ready, and none is ever used twice. Then the
 * keeper hears the request itself, sends the forked process on its way or vforks (anything that is executed), and
 * reports. The program never shares memory with server or keeper. No content of a run stays in the server: it lies in
 * mappings that are removed at the end.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define STACK (256 << 10)
#define SAMPLE 0.02
#define VALUE 3
#define PROGRAM 4

enum { NOTHING, WALL, CPU, MEMORY, STOPPED, GONE, OTHER };

/* What comes with a request, in this order, where its mask has the bit; the same order stands in inside/__init__.py. */
enum { REQUEST, IN, OUT, ERR, VALUES, COLLECT, BINARY, CONTROL, FILES };

/* A request as inside/__init__.py packs it. */
struct message {
  char kind;
  uint8_t files;
  uint8_t unused[6];
  double cpu_seconds, wall_seconds;
  int64_t memory, file, processes, neighbours, stack; /* sizes in bytes */
};

/* One server and its present run. The same fields, in the same order, stand in native.py. */
struct run {
  int32_t channel, python, cores, filter_length;
  const void *filter;
  const char *source;
  int64_t source_length;
  const char *json; /* what Python is to know of the request, in the program's own process */
  int64_t json_length;
  struct message limits;
  int32_t files[FILES];
  /* what became of it */
  int32_t heard, told, ended, status, why;
  double seconds, cpu;
  int64_t peak_kb;
  char broken[160];
};

static struct run *now;
static char *request;
static size_t request_size;
static char **words; /* argv, environment and names of files to collect, each ended by NULL */
static size_t words_size;
static char **argv, **envp, **collect;
static char *stacks;
static void *back[5];
static struct sigaction interrupt;
static int go = -1; /* the socket between a keeper and the process that waits to become the program */

static double clock_of(clockid_t id) {
  struct timespec t;
  return clock_gettime(id, &t) ? 0 : t.tv_sec + t.tv_nsec * 1e-9;
}

static double seconds_of(struct rusage *u) {
  return u->ru_utime.tv_sec + u->ru_stime.tv_sec + (u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

static void broken(const char *what) {
  snprintf(now->broken, sizeof now->broken, "%s: %s", what, strerror(errno));
  _exit(1);
}

/* -- the request: see Job.packed ----------------------------------------------------------------------------------- */

static uint32_t number(char **at) {
  uint32_t n;
  memcpy(&n, *at, 4);
  *at += 4;
  return n;
}

static char *text(char **at) {
  uint32_t n = number(at);
  char *found = *at;
  *at += n + 1;
  return found;
}

static void write_all(int file, const char *data, size_t left) {
  while (left) {
    ssize_t n = write(file, data, left);
    if (n <= 0) broken("writing a file of the run");
    data += n;
    left -= n;
  }
}

static void make_folders(char *name) {
  for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(name, 0755);
    *slash = '/';
  }
}

static void write_file(const char *name, const char *data, size_t size) {
  int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) broken(name);
  write_all(file, data, size);
  close(file);
}

/* Receive a message with its open files; their numbers by kind. */
static ssize_t hear(int channel, struct message *message, int32_t *files) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(FILES * sizeof(int))];
  } control;
  struct iovec part = {message, sizeof *message};
  struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  for (int k = 0; k < FILES; ++k) files[k] = -1;
  ssize_t size = recvmsg(channel, &whole, MSG_CMSG_CLOEXEC);
  struct cmsghdr *head = size > 0 ? CMSG_FIRSTHDR(&whole) : NULL;
  if (head && head->cmsg_type == SCM_RIGHTS) {
    int count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int), next = 0;
    for (int k = 0; k < FILES && next < count; ++k)
      if (message->files >> k & 1) memcpy(&files[k], CMSG_DATA(head) + sizeof(int) * next++, sizeof(int));
  }
  return size;
}

static int say(int channel, struct message *message, const int32_t *files) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(FILES * sizeof(int))];
  } control;
  struct iovec part = {message, sizeof *message};
  struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
  struct cmsghdr *head = &control.align;
  int count = 0;
  for (int k = 0; k < FILES; ++k)
    if (message->files >> k & 1) memcpy(CMSG_DATA(head) + sizeof(int) * count++, &files[k], sizeof(int));
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(count * sizeof(int));
  whole.msg_controllen = CMSG_SPACE(count * sizeof(int));
  return sendmsg(channel, &whole, MSG_NOSIGNAL) == sizeof *message;
}

static int map_request(void) {
  struct stat about;
  if (fstat(now->files[REQUEST], &about)) return 0;
  request_size = about.st_size;
  request = mmap(NULL, request_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, now->files[REQUEST], 0);
  if (request == MAP_FAILED) request = NULL;
  return request != NULL;
}

static void read_request(void) {
  char *at = request;
  uint32_t skipped = number(&at); /* what only Python reads */
  at += skipped;
  uint32_t files = number(&at), counts[3];
  for (uint32_t n = 0; n < files; ++n) {
    char *name = text(&at);
    uint64_t size;
    memcpy(&size, at, 8);
    at += 8;
    make_folders(name);
    write_file(name, at, size);
    at += size;
  }
  for (int k = 0; k < 3; ++k) counts[k] = number(&at);
  words_size = (counts[0] + counts[1] + counts[2] + 3) * sizeof(char *);
  words = mmap(NULL, words_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) broken("memory");
  char **next = words;
  char ***lists[3] = {&argv, &envp, &collect};
  for (int k = 0; k < 3; ++k) {
    *lists[k] = next;
    for (uint32_t n = 0; n < counts[k]; ++n) *next++ = text(&at);
    ++next; /* NULL */
  }
}

/* -- the program --------------------------------------------------------------------------------------------------- */

static void limit(int which, int64_t value) {
  struct rlimit bound;
  if (getrlimit(which, &bound)) _exit(71);
  if (bound.rlim_max == RLIM_INFINITY || (rlim_t)value < bound.rlim_max) bound.rlim_max = value;
  bound.rlim_cur = bound.rlim_max;
  if (setrlimit(which, &bound)) _exit(71);
}

static void place(int from, int to) {
  if (from < 0)
    close(to);
  else if (dup2(from, to) < 0)
    _exit(71);
}

/* What needs no request, in the program's process. */
static void give_up_rights(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, none)) _exit(71);
  setpgid(0, 0); /* not setsid(): each session is a scheduling group of its own on many machines, which costs */
  sigset_t empty;
  sigemptyset(&empty);
  sigprocmask(SIG_SETMASK, &empty, NULL);
  struct sock_fprog filter = {now->filter_length, (struct sock_filter *)now->filter};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)) _exit(71);
}

/* The rest. The process may share memory with the server, if it is going to be executed: this writes to none. */
static void confine(const struct message *limits, const int32_t *given) {
  int files[5] = {given[IN], given[OUT], given[ERR], given[VALUES], given[BINARY]};
  for (int n = 0; n < 5; ++n)
    if (files[n] >= 0 && (files[n] = fcntl(files[n], F_DUPFD, 100)) < 0) _exit(71);
  for (int n = 0; n < 5; ++n) place(files[n], n);
  syscall(SYS_close_range, PROGRAM + 1, ~0u, 0);
  limit(RLIMIT_CORE, 1);
  limit(RLIMIT_CPU, (int64_t)limits->cpu_seconds + 2);
  limit(RLIMIT_NOFILE, 256);
  limit(RLIMIT_FSIZE, limits->file);
  limit(RLIMIT_MSGQUEUE, 0);
  limit(RLIMIT_MEMLOCK, 64 << 10);
  limit(RLIMIT_NPROC, limits->processes + limits->neighbours);
  limit(RLIMIT_AS, limits->memory);
  if (limits->stack) limit(RLIMIT_STACK, limits->stack);
}

static const char *variable(const char *name) {
  size_t length = strlen(name);
  for (char **e = envp; *e; ++e)
    if (!strncmp(*e, name, length) && (*e)[length] == '=') return *e + length + 1;
  return "";
}

static int execute(void *unused) {
  (void)unused;
  give_up_rights();
  confine(&now->limits, now->files);
  struct sigaction usual = {.sa_handler = SIG_DFL};
  for (int n = 1; n < 65; ++n) sigaction(n, &usual, NULL);
  if (now->files[BINARY] >= 0) {
    syscall(SYS_execveat, PROGRAM, "", argv, envp, AT_EMPTY_PATH);
  } else if (strchr(argv[0], '/')) {
    execve(argv[0], argv, envp);
  } else {
    for (const char *path = variable("PATH"); *path;) {
      char whole[4096];
      size_t length = strcspn(path, ":");
      if (snprintf(whole, sizeof whole, "%.*s/%s", (int)length, path, argv[0]) < (int)sizeof whole)
        execve(whole, argv, envp);
      if (errno != ENOENT && errno != ENOTDIR) break;
      path += length + (path[length] == ':');
    }
  }
  dprintf(2, "%s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

/* -- watching ------------------------------------------------------------------------------------------------------ */

static size_t slurp(const char *path, char *into, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = file < 0 ? 0 : read(file, into, size - 1);
  if (file >= 0) close(file);
  into[n > 0 ? n : 0] = 0;
  return n > 0 ? n : 0;
}

/* All processes of the run but this one: how many, their processor time and, if asked for, their memory. */
static int others(double *cpu, int64_t *memory) {
  struct rusage ended;
  getrusage(RUSAGE_CHILDREN, &ended);
  *cpu = seconds_of(&ended);
  int count = 0;
  DIR *folder = opendir("/proc");
  if (!folder) return 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    int process = atoi(entry->d_name);
    if (process < 2) continue;
    ++count;
    char path[64], data[2048];
    *cpu += clock_of((clockid_t)((~(uint32_t)process << 3) | 2)); /* processor time of another process */
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    slurp(path, data, sizeof data);
    char *fields = strrchr(data, ')');
    long user, system; /* of its children that it waited for */
    if (fields && sscanf(fields + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %ld %ld", &user, &system) == 2)
      *cpu += (double)(user + system) / sysconf(_SC_CLK_TCK);
    if (memory) {
      snprintf(path, sizeof path, "/proc/%d/smaps_rollup", process);
      slurp(path, data, sizeof data);
      char *pss = strstr(data, "\nPss:");
      if (pss) *memory += atoll(pss + 5) << 10;
    }
  }
  closedir(folder);
  return count;
}

static void watch(pid_t program, double begun) {
  double deadline = begun + now->limits.wall_seconds;
  double look = begun + now->limits.cpu_seconds / now->cores, sample = begun + SAMPLE;
  struct pollfd files[2] = {{.fd = syscall(SYS_pidfd_open, program, 0), .events = POLLIN},
                            {.fd = now->files[CONTROL], .events = POLLIN}};
  if (files[0].fd < 0) broken("pidfd_open");
  while (!now->ended && !now->why) {
    double t = clock_of(CLOCK_MONOTONIC), until = deadline;
    if (look < until) until = look;
    if (sample < until) until = sample;
    until -= t;
    struct timespec wait = {0, 0};
    if (until > 0) wait.tv_sec = (time_t)until, wait.tv_nsec = (long)((until - (time_t)until) * 1e9);
    ppoll(files, 2, &wait, NULL);
    int status;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
      if (ended == program) now->ended = 1, now->status = status;
    if (now->ended) break;
    if (files[1].revents) {
      now->why = files[1].revents & POLLIN ? STOPPED : GONE;
      break;
    }
    t = clock_of(CLOCK_MONOTONIC);
    double cpu;
    if (t >= deadline) {
      now->why = WALL;
    } else if (t >= look) {
      others(&cpu, NULL);
      double left = now->limits.cpu_seconds - cpu;
      if (left <= 0) now->why = CPU;
      left /= now->cores;
      look = t + (left > 0.005 ? left : 0.005);
    } else if (t >= sample) {
      int64_t memory = 0;
      int count = others(&cpu, NULL);
      if (count > 1) {
        struct statfs disc;
        others(&cpu, &memory);
        if (!statfs("/tmp", &disc)) memory += (int64_t)(disc.f_blocks - disc.f_bfree) * disc.f_bsize;
        if (memory > now->limits.memory) now->why = MEMORY;
      }
      sample = t + (count > 1 ? SAMPLE : 5 * SAMPLE);
    }
  }
  now->seconds = clock_of(CLOCK_MONOTONIC) - begun;
  kill(-1, SIGKILL);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
  }
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  now->cpu = seconds_of(&used);
  now->peak_kb = used.ru_maxrss;
}

/* Send the files that were asked for: index, size, content of each that is a plain file. */
static void send_files(void) {
  int64_t left = now->limits.file;
  for (uint32_t n = 0; collect[n]; ++n) {
    int file = open(collect[n], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat about;
    if (file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode) && about.st_size <= left) {
      char header[12], part[1 << 16];
      uint64_t size = about.st_size;
      left -= size;
      memcpy(header, &n, 4);
      memcpy(header + 4, &size, 8);
      write_all(now->files[COLLECT], header, 12);
      for (ssize_t got; size && (got = read(file, part, sizeof part < size ? sizeof part : size)) > 0; size -= got)
        write_all(now->files[COLLECT], part, got);
    }
    if (file >= 0) close(file);
  }
}

/* -- the keeper ---------------------------------------------------------------------------------------------------- */

/* Wait for a request and take it; 0 where there is none and will be none. Two servers of one Python program hear at the
 * same socket, to which nothing but requests comes; a server of commands leaves what it has to read itself. */
static int next_request(void) {
  char kind = 0;
  if (!now->python) {
    ssize_t size = recv(now->channel, &kind, 1, MSG_PEEK);
    now->why = size <= 0 ? GONE : kind != 'R' ? OTHER : NOTHING;
    if (now->why) return 0;
  }
  now->heard = hear(now->channel, &now->limits, now->files) == sizeof now->limits && now->limits.kind == 'R';
  if (!now->heard) now->why = GONE;
  return now->heard;
}

static void size_of_discs(char *options, size_t size) {
  snprintf(options, size, "size=%lld,mode=1777,nr_inodes=65536", (long long)now->limits.file);
}

/* The world of one run: nothing of it was ever used. */
static int make_world(void) {
  char options[64];
  if (mount("none", "/", NULL, MS_PRIVATE | MS_REC, NULL)) broken("private mounts");
  size_of_discs(options, sizeof options);
  if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options)) broken("/tmp");
  unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;
  if (mount("proc", "/proc", "proc", flags, "subset=pid") && (errno != EINVAL || mount("proc", "/proc", "proc", flags, "")))
    broken("/proc");
  struct stat about; /* docker has a folder there, bubblewrap's boxes a link to /tmp */
  int shm = !lstat("/dev/shm", &about) && S_ISDIR(about.st_mode);
  if (shm && mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options)) broken("/dev/shm");
  if (mkdir("/tmp/work", 0755) || chdir("/tmp/work")) broken("/tmp/work");
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (now->source) write_file("main.py", now->source, now->source_length);
  return shm;
}

/* The report, as runner.py writes it; ``killed`` is what the keeper cannot say of itself. */
static void tell(const char *killed) {
  static const char *const why[] = {"", "wall", "cpu", "memory", "", ""};
  if (now->why == STOPPED) killed = "stopped";
  if (now->why == GONE) killed = "gone";
  for (char *c = now->broken; *c; ++c)
    if (*c < ' ' || *c == '"' || *c == '\\' || *c == 127) *c = '?';
  char text[640], status[16] = "null";
  if (now->ended) snprintf(status, sizeof status, "%d", now->status);
  int size = snprintf(text, sizeof text,
                      "{\"status\":%s,\"why\":\"%s\",\"killed\":\"%s\",\"seconds\":%.9f,\"cpu_seconds\":%.6f,"
                      "\"peak_kb\":%lld%s%s%s}",
                      status, why[now->why], killed, now->seconds, now->cpu, (long long)now->peak_kb,
                      *now->broken ? ",\"broken\":\"" : "", now->broken, *now->broken ? "\"" : "");
  now->told = send(now->channel, text, size, MSG_NOSIGNAL) == size;
}

static int keep(void *unused) {
  (void)unused;
  struct sigaction usual = {.sa_handler = SIG_DFL};
  sigaction(SIGINT, &usual, &interrupt); /* the one that Python handles; process 1 gets none that it does not */
  int shm = make_world();
  pid_t program = -1;
  if (now->python) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) broken("a pair of sockets");
    program = fork();
    if (!program) {
      close(pair[0]);
      go = pair[1];
      sigaction(SIGINT, &interrupt, NULL);
      give_up_rights();
      __builtin_longjmp(back, 1);
    }
    if (program < 0) broken("fork");
    close(pair[1]);
    go = pair[0];
  }
  int64_t file = now->limits.file;
  if (!next_request()) _exit(0);
  if (file != now->limits.file) {
    char options[64];
    size_of_discs(options, sizeof options);
    if (mount("tmpfs", "/tmp", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options)) broken("the size of /tmp");
    if (shm && mount("tmpfs", "/dev/shm", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options)) broken("the size of /dev/shm");
  }
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, none)) broken("capset");
  if (!map_request()) broken("the request");
  read_request();
  double begun = clock_of(CLOCK_MONOTONIC);
  if (!now->python)
    program = clone(execute, stacks + 2 * STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
  else if (!say(go, &now->limits, now->files))
    broken("the waiting process");
  if (program < 0) broken("fork");
  if (go >= 0) close(go);
  go = -1;
  const int ours[] = {IN, OUT, ERR, VALUES};
  for (int n = 0; n < 4; ++n)
    if (now->files[ours[n]] >= 0) close(now->files[ours[n]]);
  watch(program, begun);
  if (now->files[COLLECT] >= 0) {
    send_files();
    close(now->files[COLLECT]);
  }
  tell("");
  _exit(0); /* and the world ends, while the outside reads the report */
}

/* In the program's own process (Python): wait for the request, then become the program but for its code. */
void assay_become(struct run *run) {
  if (hear(go, &run->limits, run->files) != sizeof run->limits || !map_request()) _exit(71);
  confine(&run->limits, run->files);
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  char *at = request;
  run->json_length = number(&at);
  run->json = at;
}

/* No keeper lives: answer the next request in its place, if there was none yet, with what is wrong. */
static void answer(int status) {
  if (!now->heard) {
    if (!next_request()) return;
    for (int k = 0; k < FILES; ++k)
      if (now->files[k] >= 0) close(now->files[k]);
    if (!*now->broken) snprintf(now->broken, sizeof now->broken, "the keeper died");
  }
  now->ended = 0;
  tell(WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL ? "stuck" : "");
}

/* Serve runs. 1 in the process of a Python program, which goes on with assay_become(); 2 in the server when there is a
 * message that it has to read itself, 0 when the outside is gone, -1 if there is no memory. */
int assay_serve(struct run *run) {
  now = run;
  if (!stacks) {
    stacks = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) return stacks = NULL, -1;
  }
  if (__builtin_setjmp(back)) return 1;
  for (;;) {
    now->heard = now->told = now->ended = now->status = now->why = 0;
    now->seconds = now->cpu = now->peak_kb = 0;
    now->broken[0] = 0;
    int status = 0;
    pid_t keeper = clone(keep, stacks + STACK, CLONE_VM | CLONE_VFORK | CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL);
    if (keeper < 0)
      snprintf(now->broken, sizeof now->broken, "new namespaces: %s", strerror(errno));
    else
      while (waitpid(keeper, &status, 0) < 0 && errno == EINTR) {
      }
    if (request) munmap(request, request_size);
    if (words) munmap(words, words_size);
    request = NULL;
    words = NULL;
    madvise(stacks, 2 * STACK, MADV_DONTNEED); /* pieces of names and words lie there */
    go = -1;
    if (!now->told && now->why != GONE && now->why != OTHER) answer(status);
    if (now->why == OTHER) return 2;
    if (now->why == GONE) return 0;
  }
}

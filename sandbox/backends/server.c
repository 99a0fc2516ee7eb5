/* The program that is process 1 of a sandbox, and the one that starts it.

   It mounts the bounded writable directories, gives up every capability, the
   right to make user namespaces and the calls that only attack the kernel, then
   serves requests over its standard input and output. Being process 1 it can't
   be killed, stopped or traced from inside; it adopts and reaps every orphan;
   when it ends, or its controller does, the kernel kills all the rest.

   It waits for nobody: commands, programs that report and forwarded connections
   share one poll loop. If the controller stops reading, a reply waits, but the
   deadlines of commands, the memory bound and the lifetime hold meanwhile.

   A frame, both ways, is `id:4 op:1 flags:1 fields:2 length:8` in network order,
   then `length` bytes of fields, each `length:4 bytes`; numbers are 8 bytes. A
   request that can't be understood is answered by an error. served.py is the
   other end; its comments say what the operations mean. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/mount.h> /* before sys/mount.h, which it contradicts */
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define WORKSPACE "/workspace"
#define REPORT "/run/sandbox/report"
#define LOWER "/run/lower"
#define UPPER "/run/upper"

enum {
  MAX_BODY = (1 << 20) + (1 << 16),
  HEADER = 16,
  FIELDS = 8,
  COPY = 1 << 16,
  CHUNK = 1 << 18,
  WINDOW = 1 << 18, /* of a forwarded connection, each way */
  REPORT_BYTES = 1 << 16,
  REPORTS = 1000,
  ALL_REPORT_BYTES = 4 << 20,
  CLIENTS = 16,
  CONNECTIONS = 64,
  COMMANDS = 64,  /* running at once */
  FINISHED = 64,  /* in the background, remembered */
  PENDING = 1 << 20,
  PROCESSES = 1 << 14,
  LINKS = 1 << 16,
  LISTENERS = 16,
  KILL_ROUNDS = 20,
};

enum {
  READY, EXEC, SPAWN, POLL, SEND, KILL, READ, WRITE, LIST, PROCS, QUIET, PACK, UNPACK,
  OPENED = 20, DATA, ACK, END, CLOSED, REPORTED
};
enum { MORE = 1, ERROR = 2 };

struct field { const unsigned char *at; size_t size; };

struct command {
  struct command *next;
  uint32_t request, number, poller; /* the exec or poll that waits; 0 if none */
  pid_t pid;
  int out, in, pty, done, code, timed_out, out_of_memory, eof;
  double started, deadline, poll_end;
  pid_t *before; /* what ran when it started */
  size_t befores, head, total, pending;
  unsigned char *kept, *input;
};

struct client { int fd; size_t size; double deadline; char *line; };

struct connection {
  uint32_t number;
  int fd, ended, end_after; /* its side; the controller's, once written out */
  size_t size, written, unread;
  unsigned char *buffer;
};

struct process { pid_t pid, parent, session; int alive; };

static struct {
  int mount, mounts, listeners, forwards[LISTENERS], ports[LISTENERS];
  int seal, in, out, signals, reports;
  uint64_t disk, inodes, memory, keep;
  double lifetime, watch;
  char **env;
  size_t envs;
  struct { int what; rlim_t value; } limits[8];
  int limited;
  char *folders[32];
} set = {.disk = 64 << 20, .inodes = 8192, .memory = 1 << 30, .keep = 32 << 10,
         .lifetime = 3600, .watch = .05, .seal = 0};

static unsigned char incoming[HEADER + MAX_BODY], copy[COPY], packed[CHUNK];
static size_t received, packed_size;
static uint64_t skipping, pack_left;
static struct command *commands;
static uint32_t last_number, last_connection;
static struct client clients[CLIENTS];
static struct connection connections[CONNECTIONS];
static struct process table[PROCESSES];
static size_t reported, reported_bytes;
static double started, next_watch;
static int children, overlaid;
static DIR *proc;
static const char *why; /* what an error is about, where its number says too little */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
  dprintf(2, "sandbox server: %s: %s\n", what, strerror(errno));
  _exit(1);
}

static void *pages(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* Processes. */

/* Fills `table` with all processes but this one and process 1. */
static size_t scan(int detailed) {
  size_t count = 0;
  char path[64], text[512];
  rewinddir(proc);
  for (struct dirent *e; count < PROCESSES && (e = readdir(proc)) != NULL;) {
    pid_t pid = atoi(e->d_name);
    if (pid <= 1 || pid == getpid()) continue;
    struct process *p = &table[count];
    *p = (struct process){.pid = pid, .alive = 1};
    if (detailed) {
      snprintf(path, sizeof path, "/proc/%d/stat", pid);
      int fd = open(path, O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      ssize_t size = read(fd, text, sizeof text - 1);
      close(fd);
      text[size < 0 ? 0 : size] = 0;
      char state = 'X', *rest = strrchr(text, ')');
      int parent = 0, session = 0;
      if (rest != NULL)
        sscanf(rest + 1, " %c %d %*d %d", &state, &parent, &session);
      p->parent = parent, p->session = session;
      p->alive = state != 'Z' && state != 'X';
    }
    count++;
  }
  return count;
}

static struct command *root_of(pid_t pid) {
  for (struct command *c = commands; c != NULL; c = c->next)
    if (!c->done && c->pid == pid) return c;
  return NULL;
}

/* The running command that `p` is of, by descent or session, or NULL: a daemon. */
static struct command *owner(struct process *p, size_t count) {
  for (int depth = 0; depth < 256; depth++) {
    struct command *c = root_of(p->pid);
    if (c == NULL) c = root_of(p->session);
    if (c != NULL || p->parent <= 1) return c;
    size_t i = 0;
    while (i < count && table[i].pid != p->parent) i++;
    if (i == count) return NULL;
    p = &table[i];
  }
  return NULL;
}

/* Kills `c` and all it started, or everything where `c` is NULL.

   A daemon whose origin can't be told counts as its own, unless it was there
   before. A tree that forks faster than it can be walked takes the rest along:
   `kill(-1)` signals all at once, and a fork under way then fails. The killed are
   waited for a while, for the kernel needs time to take down what was large. */
static void kill_tree(struct command *c) {
  pid_t newest = 0;
  for (int round = 0, growing = 0; round < 200; round++) {
    size_t count = scan(1), victims = 0, fresh = 0;
    pid_t last = newest;
    for (size_t i = 0; i < count; i++) {
      if (!table[i].alive) continue;
      if (c != NULL) {
        struct command *of = owner(&table[i], count);
        if (of != NULL && of != c) continue;
        size_t b = 0;
        while (b < c->befores && c->before[b] != table[i].pid) b++;
        if (of == NULL && b < c->befores) continue;
      }
      victims++;
      fresh += table[i].pid > last;
      if (table[i].pid > newest) newest = table[i].pid;
      kill(table[i].pid, SIGKILL);
    }
    if (victims == 0) return;
    if (fresh > 0 && ++growing == KILL_ROUNDS) kill(-1, SIGKILL);
    usleep(2000);
  }
}

/* Resident bytes of all processes but this one, shared pages counted twice. */
static uint64_t memory_in_use(void) {
  uint64_t total = 0;
  char path[64], text[128];
  size_t count = scan(0);
  for (size_t i = 0; i < count; i++) {
    snprintf(path, sizeof path, "/proc/%d/statm", table[i].pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    unsigned long resident = 0;
    text[size < 0 ? 0 : size] = 0;
    sscanf(text, "%*u %lu", &resident);
    total += resident;
  }
  return total * sysconf(_SC_PAGESIZE);
}

static int running(const struct command *c) { return c != NULL && !c->done; }

/* Holds every bound in time; sends nothing, so that it can run while a reply waits. */
static void watch(void) {
  double time = now();
  int active = 0;
  if (time >= started + set.lifetime) _exit(0);
  for (struct command *c = commands; c != NULL; c = c->next) {
    active |= running(c);
    if (running(c) && c->request && time >= c->deadline && !c->timed_out) {
      c->timed_out = 1;
      kill_tree(c);
    }
  }
  if (!children || time < next_watch) return;
  next_watch = time + (active ? set.watch : 1.0);
  if (memory_in_use() > set.memory) {
    for (struct command *c = commands; c != NULL; c = c->next)
      c->out_of_memory |= running(c);
    kill_tree(NULL);
  }
}

/* Frames. */

static void send_all(struct iovec *parts, int count) {
  while (count > 0) {
    ssize_t sent = writev(set.out, parts, count);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) {
      struct pollfd p = {set.out, POLLOUT, 0};
      poll(&p, 1, 50);
      watch();
      continue;
    }
    if (sent < 0) _exit(0); /* the controller is gone */
    while (count > 0 && (size_t)sent >= parts->iov_len)
      sent -= parts->iov_len, parts++, count--;
    if (count > 0) {
      parts->iov_base = (char *)parts->iov_base + sent;
      parts->iov_len -= sent;
    }
  }
}

static void frame(uint32_t id, int op, int flags, int count, const struct field *fields) {
  unsigned char header[HEADER];
  uint32_t sizes[FIELDS], net_id = htonl(id);
  struct iovec parts[1 + 2 * FIELDS] = {{header, HEADER}};
  uint64_t length = 0;
  for (int i = 0; i < count; i++) {
    sizes[i] = htonl(fields[i].size);
    parts[1 + 2 * i] = (struct iovec){&sizes[i], 4};
    parts[2 + 2 * i] = (struct iovec){(void *)fields[i].at, fields[i].size};
    length += 4 + fields[i].size;
  }
  uint64_t net_length = htobe64(length);
  memcpy(header, &net_id, 4);
  header[4] = op, header[5] = flags, header[6] = 0, header[7] = count;
  memcpy(header + 8, &net_length, 8);
  send_all(parts, 1 + 2 * count);
}

/* A frame of numbers, as many as follow. */
#define NUMBERS(id, op, flags, ...) do { \
    uint64_t values[] = {__VA_ARGS__}; \
    numbers(id, op, flags, sizeof values / 8, values); \
  } while (0)

static void numbers(uint32_t id, int op, int flags, int count, uint64_t *values) {
  struct field fields[FIELDS];
  for (int i = 0; i < count; i++) {
    values[i] = htobe64(values[i]);
    fields[i] = (struct field){(void *)&values[i], 8};
  }
  frame(id, op, flags, count, fields);
}

static void refuse(uint32_t id, int op, int code) {
  uint64_t number = htobe64(code);
  const char *text = why != NULL ? why : strerror(code);
  struct field fields[] = {{(void *)text, strlen(text)}, {(void *)&number, 8}};
  frame(id, op, ERROR, 2, fields);
}

static uint64_t number(struct field f) {
  uint64_t value = 0;
  if (f.size == 8) memcpy(&value, f.at, 8);
  return be64toh(value);
}

/* Output of commands: head and tail of what was written. */

static void keep(struct command *c, const unsigned char *data, size_t size) {
  size_t room = set.keep - c->head, first = size < room ? size : room;
  memcpy(c->kept + c->head, data, first);
  c->head += first, c->total += first, data += first, size -= first;
  if (size > set.keep) c->total += size - set.keep, data += size - set.keep, size = set.keep;
  while (size > 0) { /* a ring behind the head */
    size_t at = (c->total - c->head) % set.keep;
    size_t part = size < set.keep - at ? size : set.keep - at;
    memcpy(c->kept + set.keep + at, data, part);
    c->total += part, data += part, size -= part;
  }
}

/* Answers with what was kept and forgets it. */
static void tell(struct command *c, uint32_t id, int op) {
  size_t tail = c->total - c->head, at = tail % set.keep, left = 0;
  unsigned char *ring = c->kept + set.keep, *text = ring;
  if (tail > set.keep) {
    left = tail - set.keep, tail = set.keep;
    if (at) { /* unrolled into what lies behind the ring */
      text = ring + set.keep;
      memcpy(text, ring + at, set.keep - at);
      memcpy(text + set.keep - at, ring, at);
    }
  }
  uint64_t values[5] = {
      htobe64(left), htobe64(c->total), htobe64(c->done ? c->code : -1),
      htobe64(c->timed_out | c->out_of_memory << 1),
      htobe64((now() - c->started) * 1e6)};
  struct field fields[7] = {{c->kept, c->head}, {text, tail}};
  for (int i = 0; i < 5; i++) fields[2 + i] = (struct field){(void *)&values[i], 8};
  frame(id, op, 0, 7, fields);
  c->head = c->total = 0;
}

static void drain(struct command *c) {
  for (int round = 0; c->out >= 0 && round < 16; round++) {
    ssize_t size = read(c->out, copy, sizeof copy);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size > 0) { keep(c, copy, size); continue; }
    close(c->out); /* its end; of a terminal that is EIO */
    if (c->pty) c->in = -1;
    c->out = -1;
  }
}

static void feed(struct command *c) {
  while (c->in >= 0 && c->pending > 0) {
    ssize_t size = write(c->in, c->input, c->pending);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) { c->pending = 0, c->eof = 1; break; }
    memmove(c->input, c->input + size, c->pending -= size);
  }
  if (c->eof && c->in >= 0 && c->in != c->out) close(c->in), c->in = -1;
}

static void forget(struct command *c) {
  if (c->in >= 0 && c->in != c->out) close(c->in);
  if (c->out >= 0) close(c->out); /* what still runs would go on writing to it */
  if (c->kept != NULL) munmap(c->kept, 3 * set.keep);
  if (c->input != NULL) munmap(c->input, PENDING);
  free(c->before);
  free(c);
}

static void reap(void) {
  int status, finished = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    struct command *c = root_of(pid);
    if (c == NULL) continue;
    drain(c);
    c->done = 1;
    c->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  children = pid == 0;
  for (struct command *c = commands; c != NULL; c = c->next) {
    if (c->done && c->poller) tell(c, c->poller, POLL), c->poller = 0;
    if (c->poller && now() >= c->poll_end) tell(c, c->poller, POLL), c->poller = 0;
  }
  for (struct command **at = &commands; *at != NULL;) { /* newest first */
    struct command *c = *at;
    if (c->done && c->request) tell(c, c->request, EXEC);
    if (c->done && (c->request || ++finished > FINISHED)) {
      *at = c->next;
      forget(c);
    } else {
      at = &c->next;
    }
  }
}

/* In the child: streams, bounds, then the shell. Never returns. */
static void become(char *text, int in, int out, int pty) {
  static char term[] = "TERM=xterm-256color";
  sigset_t none;
  setsid();
  if (pty) ioctl(out, TIOCSCTTY, 0);
  if (in >= 0) dup2(in, 0);
  dup2(out, 1);
  dup2(out, 2);
  close_range(3, ~0U, 0);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_DFL);
  int bad = chdir(WORKSPACE);
  for (int i = 0; i < set.limited; i++) {
    struct rlimit limit = {set.limits[i].value, set.limits[i].value};
    bad |= setrlimit(set.limits[i].what, &limit);
  }
  if (pty) set.env[set.envs] = term;
  const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
  char *argv[] = {(char *)shell, "-c", text, NULL};
  if (!bad) execve(shell, argv, set.env);
  dprintf(2, "cannot start: %s", strerror(errno));
  _exit(126);
}

/* Starts `text` as a new command; an errno or 0. */
static int begin(struct field text, int background, int pty, struct command **made) {
  size_t active = 0;
  int in[2] = {-1, -1}, out[2] = {-1, -1}, off = 0, error = 0;
  for (struct command *c = commands; c != NULL; c = c->next) active += running(c);
  if (active >= COMMANDS) return why = "too many commands at once", EAGAIN;
  struct command *c = calloc(1, sizeof *c);
  char *line = strndup((const char *)text.at, text.size);
  if (c != NULL) c->in = c->out = -1, c->kept = pages(3 * set.keep);
  if (c == NULL || line == NULL || c->kept == NULL) goto failed;
  if (background && (c->input = pages(PENDING)) == NULL) goto failed;
  if (children && (c->befores = scan(0)) > 0) {
    if ((c->before = malloc(c->befores * sizeof(pid_t))) == NULL) goto failed;
    for (size_t i = 0; i < c->befores; i++) c->before[i] = table[i].pid;
  }
  if (pty) {
    struct winsize window = {24, 80, 0, 0};
    out[0] = in[1] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[0] < 0 || ioctl(out[0], TIOCSPTLCK, &off)) goto failed;
    out[1] = in[0] = ioctl(out[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[1] < 0) goto failed;
    ioctl(out[0], TIOCSWINSZ, &window);
  } else if (pipe2(out, O_CLOEXEC) || (background && pipe2(in, O_CLOEXEC))) {
    goto failed;
  }
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  if (background) fcntl(in[1], F_SETFL, O_NONBLOCK);
  if ((c->pid = fork()) == 0) become(line, in[0], out[1], pty);
  if (c->pid < 0) goto failed;
  close(out[1]);
  if (in[0] >= 0 && !pty) close(in[0]);
  free(line);
  c->out = out[0], c->in = in[1], c->pty = pty;
  c->started = now();
  c->next = commands, commands = c;
  children = 1;
  next_watch = c->started + set.watch;
  *made = c;
  return 0;
failed:
  error = errno ? errno : ENOMEM;
  for (int i = 0; i < 2; i++) {
    if (out[i] >= 0) close(out[i]);
    if (in[i] >= 0 && !pty) close(in[i]);
  }
  if (c != NULL) forget(c);
  free(line);
  return error;
}

/* Operations: each returns 0 (done), an errno, or -1 (it answers by itself). */

static int do_exec(uint32_t id, struct field *f) {
  struct command *c;
  int error = begin(f[0], 0, 0, &c);
  if (error) return error;
  c->request = id;
  c->deadline = c->started + number(f[1]) / 1e3;
  return -1;
}

static int do_spawn(uint32_t id, struct field *f) {
  struct command *c;
  int error = begin(f[0], 1, number(f[1]) != 0, &c);
  if (error) return error;
  c->number = ++last_number;
  NUMBERS(id, SPAWN, 0, c->number);
  return -1;
}

static struct command *numbered(struct field f) {
  struct command *c = commands;
  while (c != NULL && (c->number == 0 || c->number != number(f))) c = c->next;
  if (c == NULL) why = "no such command";
  return c;
}

static int do_poll(uint32_t id, struct field *f) {
  struct command *c = numbered(f[0]);
  if (c == NULL) return ESRCH;
  drain(c);
  if (c->poller) tell(c, c->poller, POLL);
  c->poller = 0;
  if (c->done || number(f[1]) == 0) return tell(c, id, POLL), -1;
  c->poller = id;
  c->poll_end = now() + number(f[1]) / 1e3;
  return -1;
}

static int do_send(uint32_t id, struct field *f) {
  struct command *c = numbered(f[0]);
  static const unsigned char ends[] = {4}; /* what a terminal takes as the end */
  size_t more = c != NULL && number(f[2]) && c->pty;
  (void)id;
  if (c == NULL) return ESRCH;
  if (c->done || c->in < 0 || c->eof) return why = "its input is closed", EPIPE;
  if (c->pending + f[1].size + more > PENDING)
    return why = "it does not read its input", EAGAIN;
  memcpy(c->input + c->pending, f[1].at, f[1].size);
  memcpy(c->input + c->pending + f[1].size, ends, more);
  c->pending += f[1].size + more;
  c->eof = number(f[2]) && !c->pty;
  feed(c);
  return 0;
}

static int do_kill(uint32_t id, struct field *f) {
  struct command *c = numbered(f[0]);
  (void)id;
  if (c == NULL) return ESRCH;
  kill_tree(c);
  return 0;
}

/* A path relative to the workspace, as text. */
static int path_of(struct field f, char *path) {
  const char *base = f.size > 0 && f.at[0] == '/' ? "" : WORKSPACE "/";
  if (memchr(f.at, 0, f.size) != NULL) return EINVAL;
  if (strlen(base) + f.size >= PATH_MAX) return ENAMETOOLONG;
  snprintf(path, PATH_MAX, "%s%.*s", base, (int)f.size, (const char *)f.at);
  return 0;
}

static int make_folders(const char *path) {
  char part[PATH_MAX];
  for (const char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
    if (mkdir(part, 0755) && errno != EEXIST && errno != EROFS) return errno;
  }
  return 0;
}

/* Opens a regular file without waiting; a FIFO with no writer must not hold us. */
static int open_regular(const char *path, int flags, struct stat *info) {
  int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  if (fstat(fd, info) == 0 && S_ISREG(info->st_mode)) return fd;
  close(fd);
  why = "not a regular file";
  errno = EISDIR;
  return -1;
}

static int write_all(int fd, const unsigned char *data, size_t size) {
  while (size > 0) {
    ssize_t done = write(fd, data, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    data += done, size -= done;
  }
  return 0;
}

static int do_read(uint32_t id, struct field *f) {
  char path[PATH_MAX];
  struct stat info;
  int error = path_of(f[0], path);
  if (error) return error;
  int fd = open_regular(path, O_RDONLY, &info);
  if (fd < 0) return errno;
  uint64_t left = number(f[1]);
  ssize_t size;
  do {
    size_t want = left < sizeof copy ? left : sizeof copy;
    size = want ? read(fd, copy, want) : 0;
    if (size < 0) { error = errno; break; }
    left -= size;
    struct field part = {copy, size};
    int last = (size_t)size < sizeof copy;
    frame(id, READ, last ? 0 : MORE, 1, &part);
    if (last) error = -1;
  } while (error == 0);
  close(fd);
  return error;
}

static int do_write(uint32_t id, struct field *f) {
  char path[PATH_MAX];
  struct stat info;
  int error = path_of(f[0], path);
  (void)id;
  if (error || (error = make_folders(path))) return error;
  int fd = open_regular(path, O_WRONLY | O_CREAT, &info);
  if (fd < 0) return errno;
  off_t at = number(f[2]);
  if (at == 0 && ftruncate(fd, 0)) error = errno;
  if (lseek(fd, at, SEEK_SET) < 0) error = errno;
  if (error == 0) error = write_all(fd, f[1].at, f[1].size);
  if (close(fd) && error == 0) error = errno;
  return error;
}

/* Lists and snapshots: a walk, and a stream of frames marked `MORE`. */

static uint32_t stream_id;
static int stream_op;

static void flush(void) {
  struct field part = {packed, packed_size};
  if (packed_size > 0) frame(stream_id, stream_op, MORE, 1, &part);
  packed_size = 0;
  watch();
}

static int put(const void *data, size_t size) {
  if (size > pack_left) return why = "the workspace is larger than its bound", EFBIG;
  pack_left -= size;
  for (const unsigned char *at = data; size > 0;) {
    size_t part = size < CHUNK - packed_size ? size : CHUNK - packed_size;
    memcpy(packed + packed_size, at, part);
    packed_size += part, at += part, size -= part;
    if (packed_size == CHUNK) flush();
  }
  return 0;
}

/* kind:1 mode:4 seconds:8 name:4 data:8, then the name. */
static int put_entry(char kind, const char *name, const struct stat *info, uint64_t size) {
  unsigned char entry[25] = {kind};
  uint32_t mode = htonl(info->st_mode & 07777), length = htonl(strlen(name));
  uint64_t seconds = htobe64(info->st_mtime), bytes = htobe64(size);
  memcpy(entry + 1, &mode, 4);
  memcpy(entry + 5, &seconds, 8);
  memcpy(entry + 13, &length, 4);
  memcpy(entry + 17, &bytes, 8);
  int error = put(entry, sizeof entry);
  return error ? error : put(name, strlen(name));
}

static int not_dots(const struct dirent *e) {
  return strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
}

/* Entries of a folder by name; one that its owner shut is opened. */
static int entries(const char *path, struct dirent ***names) {
  int count = scandir(path, names, not_dots, alphasort);
  if (count < 0 && errno == EACCES && chmod(path, 0700) == 0)
    count = scandir(path, names, not_dots, alphasort);
  return count;
}

/* Calls `visit` on all below `root`, parents first, by name. What can't be seen (a
   path longer than the system takes, what vanished) is left out. */
static int walk(const char *root,
                int (*visit)(const char *name, const char *path, struct stat *info)) {
  char path[PATH_MAX], **stack = malloc(sizeof *stack), **more;
  size_t depth = 0;
  int error = stack != NULL && (stack[0] = strdup("")) != NULL ? 0 : ENOMEM;
  if (error == 0) depth = 1;
  while (depth > 0) {
    char *name = stack[--depth];
    struct dirent **below = NULL;
    struct stat info;
    int count = 0, top = *name == 0;
    int size = snprintf(path, sizeof path, "%s%s%s", root, top ? "" : "/", name);
    if (error == 0 && size < PATH_MAX && lstat(path, &info) == 0) {
      if (!top) error = visit(name, path, &info);
      if (error == 0 && (top || S_ISDIR(info.st_mode))) count = entries(path, &below);
      if (count < 0 && top) error = errno;
    } else if (error == 0 && top) {
      error = errno;
    }
    if (count > 0) {
      if ((more = realloc(stack, (depth + count) * sizeof *stack)) != NULL) stack = more;
      else error = ENOMEM;
    }
    while (count-- > 0) { /* the last first: it is a stack */
      if (error == 0 && asprintf(&stack[depth++], "%s%s%s", name, top ? "" : "/",
                                 below[count]->d_name) < 0)
        depth--, error = ENOMEM;
      free(below[count]);
    }
    free(below);
    free(name);
  }
  free(stack);
  return error;
}

static int stream(uint32_t id, int op, uint64_t limit, const char *root,
                  int (*visit)(const char *, const char *, struct stat *)) {
  stream_id = id, stream_op = op, pack_left = limit, packed_size = 0;
  int error = walk(root, visit);
  if (error == 0 && op == PACK) error = put_entry('e', "", &(struct stat){0}, 0);
  if (error == 0) flush();
  madvise(packed, sizeof packed, MADV_DONTNEED);
  return error;
}

static int list_one(const char *name, const char *path, struct stat *info) {
  mode_t m = info->st_mode;
  (void)path;
  return put_entry(S_ISDIR(m) ? 'd' : S_ISREG(m) ? 'f' : S_ISLNK(m) ? 'l' : 'o', name,
                   info, info->st_size);
}

static int do_list(uint32_t id, struct field *f) {
  char path[PATH_MAX];
  int error = path_of(f[0], path);
  return error ? error : stream(id, LIST, 64 << 20, path, list_one);
}

/* Adds a regular file, even where its owner took the right to read it. */
static int pack_file(const char *name, const char *path, struct stat *info) {
  int fd = open_regular(path, O_RDONLY | O_NOFOLLOW, info);
  if (fd < 0 && errno == EACCES && chmod(path, 0600) == 0) {
    mode_t mode = info->st_mode;
    fd = open_regular(path, O_RDONLY | O_NOFOLLOW, info);
    chmod(path, mode & 07777);
    info->st_mode = mode;
  }
  if (fd < 0) return errno == EACCES || errno == EMFILE || errno == ENFILE ? errno : 0;
  uint64_t left = info->st_size;
  int error = put_entry('f', name, info, left);
  while (error == 0 && left > 0) {
    ssize_t size = read(fd, copy, left < sizeof copy ? left : sizeof copy);
    if (size <= 0) { /* it shrank meanwhile */
      size = left < sizeof copy ? left : sizeof copy;
      memset(copy, 0, size);
    }
    error = put(copy, size);
    left -= size;
  }
  close(fd);
  return error;
}

static int pack_one(const char *name, const char *path, struct stat *info) {
  if (S_ISREG(info->st_mode)) return pack_file(name, path, info);
  if (S_ISDIR(info->st_mode)) return put_entry('d', name, info, 0);
  if (!S_ISLNK(info->st_mode)) return 0;
  char target[PATH_MAX];
  ssize_t size = readlink(path, target, sizeof target);
  if (size < 0) return 0;
  int error = put_entry('l', name, info, size);
  return error ? error : put(target, size);
}

static int do_pack(uint32_t id, struct field *f) {
  return stream(id, PACK, number(f[0]), WORKSPACE, pack_one);
}

/* Snapshots on the way in: files first and links last; what would leave the root,
   itself or by a link, is dropped. Comes in parts, one snapshot at a time. */

static struct {
  uint32_t id;
  char root[PATH_MAX], name[PATH_MAX], target[PATH_MAX];
  unsigned char entry[25];
  enum { IN_ENTRY, IN_NAME, IN_DATA } phase;
  size_t got, links;
  uint32_t mode, name_size;
  uint64_t seconds, left, dropped;
  struct { char *path, *target; } *link;
  int fd, error, ended;
} un = {.fd = -1};

static int leaves(const char *name) {
  if (*name == '/' || *name == 0) return 1;
  for (const char *at = name; at != NULL; at = strchr(at, '/')) {
    at += *at == '/';
    if (!strncmp(at, "..", 2) && (at[2] == '/' || at[2] == 0)) return 1;
  }
  return 0;
}

/* Whether `path`, links followed, is `root` or below it; it need not exist. */
static int stays(const char *path, const char *root) {
  char done[PATH_MAX] = "", rest[2 * PATH_MAX], target[PATH_MAX], next[2 * PATH_MAX];
  int followed = 0;
  snprintf(rest, sizeof rest, "%s", path);
  while (*rest) {
    size_t skip = strspn(rest, "/"), size = strcspn(rest + skip, "/");
    char *part = rest + skip, *after = part + size;
    if (size == 2 && !strncmp(part, "..", 2)) {
      char *up = strrchr(done, '/');
      if (up != NULL) *up = 0;
    } else if (size > 0 && !(size == 1 && *part == '.')) {
      size_t length = strlen(done);
      if (length + 1 + size >= sizeof done) return 0;
      snprintf(done + length, sizeof done - length, "/%.*s", (int)size, part);
      ssize_t to = readlink(done, target, sizeof target - 1);
      if (to >= 0) {
        if (++followed > 40) return 0;
        target[to] = 0;
        done[*target == '/' ? 0 : length] = 0;
        if (snprintf(next, sizeof next, "%s%s", target, after) >= (int)sizeof next)
          return 0;
        memcpy(rest, next, sizeof rest);
        continue;
      }
    }
    memmove(rest, after, strlen(after) + 1);
  }
  size_t size = strlen(root);
  return !strncmp(done, root, size) && (done[size] == '/' || done[size] == 0);
}

static void fail(int error) {
  if (un.error == 0) un.error = error;
}

/* Begins the entry whose header and name are there. */
static void begin_entry(void) {
  char path[2 * PATH_MAX];
  struct stat info;
  snprintf(path, sizeof path, "%s/%s", un.root, un.name);
  int error = 0, kind = un.entry[0], flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
  un.ended |= kind == 'e';
  if (kind == 'e' || un.error) return;
  if (memchr(un.name, 0, un.name_size) || strlen(path) >= PATH_MAX || leaves(un.name)) {
    un.dropped++;
    un.entry[0] = 'x';
  } else if (kind == 'd') {
    strcat(path, "/");
    error = make_folders(path);
  } else if (kind == 'f') {
    error = make_folders(path);
    if (error == 0 && lstat(path, &info) == 0 && !S_ISREG(info.st_mode) &&
        !S_ISDIR(info.st_mode))
      unlink(path);
    if (error == 0 && (un.fd = open_regular(path, flags, &info)) < 0) error = errno;
  } else if (kind != 'l') {
    un.entry[0] = 'x';
    un.dropped++;
  }
  if (error) fail(error);
}

/* Ends the entry whose data has come. */
static void end_entry(void) {
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", un.root, un.name);
  if (un.fd >= 0) {
    /* Whoever reads next is the owner: no file may be shut to him. */
    struct timespec times[2] = {{un.seconds, 0}, {un.seconds, 0}};
    fchmod(un.fd, (un.mode & 0777) | 0600);
    futimens(un.fd, times);
    if (close(un.fd)) fail(errno);
    un.fd = -1;
  } else if (un.entry[0] == 'l' && un.error == 0) {
    void *more = un.links < LINKS ? un.link : NULL;
    if (un.links % 256 == 0 && un.links < LINKS)
      more = realloc(un.link, (un.links + 256) * sizeof *un.link);
    if (more == NULL) { fail(ENOMEM); return; }
    un.link = more;
    un.target[un.got] = 0;
    un.link[un.links].path = strdup(path);
    un.link[un.links].target = strdup(un.target);
    if (un.link[un.links].path && un.link[un.links].target) un.links++;
    else fail(ENOMEM);
  }
}

/* Reads the header of an entry. */
static void read_entry(void) {
  memcpy(&un.mode, un.entry + 1, 4);
  memcpy(&un.seconds, un.entry + 5, 8);
  memcpy(&un.name_size, un.entry + 13, 4);
  memcpy(&un.left, un.entry + 17, 8);
  un.mode = ntohl(un.mode), un.seconds = be64toh(un.seconds);
  un.name_size = ntohl(un.name_size), un.left = be64toh(un.left);
  if (un.name_size < PATH_MAX && un.left <= INT64_MAX &&
      (un.entry[0] != 'l' || un.left < PATH_MAX))
    return;
  fail(EBADMSG);
  un.ended = 1;
}

/* Takes some more of a snapshot, cut anywhere. */
static void take(const unsigned char *data, size_t size) {
  while (!un.ended) {
    uint64_t want = un.phase == IN_ENTRY  ? sizeof un.entry - un.got
                    : un.phase == IN_NAME ? un.name_size - un.got
                                          : un.left;
    size_t part = want < size ? want : size;
    if (un.phase == IN_ENTRY) memcpy(un.entry + un.got, data, part);
    if (un.phase == IN_NAME) memcpy(un.name + un.got, data, part);
    if (un.phase == IN_DATA) {
      if (un.entry[0] == 'l') memcpy(un.target + un.got, data, part);
      if (un.fd >= 0 && un.error == 0) fail(write_all(un.fd, data, part));
      un.left -= part;
    }
    un.got += part, data += part, size -= part;
    if (part < want) return;
    if (un.phase == IN_ENTRY) read_entry();
    if (un.phase == IN_NAME) un.name[un.name_size] = 0, begin_entry();
    if (un.phase == IN_DATA) end_entry();
    un.phase = un.phase == IN_DATA ? IN_ENTRY : un.phase + 1;
    un.got = 0;
  }
}

static void make_links(void) {
  for (size_t i = 0; i < un.links; i++) {
    if (!stays(un.link[i].path, un.root)) { un.dropped++; continue; } /* by another */
    int error = make_folders(un.link[i].path);
    if (error == 0 && symlink(un.link[i].target, un.link[i].path)) error = errno;
    if (error && error != EEXIST && error != ENOTDIR) fail(error);
  }
  for (size_t i = 0; i < un.links; i++) {
    if (!stays(un.link[i].path, un.root) && unlink(un.link[i].path) == 0) un.dropped++;
    free(un.link[i].path);
    free(un.link[i].target);
  }
  free(un.link);
  un.link = NULL, un.links = 0;
}

static int do_unpack(uint32_t id, struct field *f) {
  int first = number(f[1]) & 1, last = number(f[1]) & 2;
  if (first) {
    if (un.fd >= 0) close(un.fd);
    un.fd = -1, un.id = id, un.error = un.ended = 0;
    un.phase = IN_ENTRY, un.got = un.dropped = un.links = 0;
    int error = path_of(f[0], un.root);
    if (error) fail(error);
  }
  if (un.id != id) return EINVAL;
  take(f[2].at, f[2].size);
  if (!last) return -1;
  if (!un.ended) fail(EBADMSG);
  if (un.error == 0 || un.links) make_links();
  if (un.error) return un.error;
  NUMBERS(id, UNPACK, 0, un.dropped);
  return -1;
}

static int do_processes(uint32_t id, struct field *f) {
  size_t count = scan(0);
  uint32_t *ids = (uint32_t *)copy;
  (void)f;
  if (count > sizeof copy / 4) count = sizeof copy / 4;
  for (size_t i = 0; i < count; i++) ids[i] = htonl(table[i].pid);
  struct field all = {copy, 4 * count};
  frame(id, PROCS, 0, 1, &all);
  return -1;
}

static int do_quiet(uint32_t id, struct field *f) {
  (void)id, (void)f;
  kill_tree(NULL);
  reap();
  return 0;
}

/* Forwarded connections: a window each way, so that neither side holds much. */

static void close_connection(struct connection *c, int say) {
  if (say) frame(c->number, CLOSED, 0, 0, NULL);
  close(c->fd);
  if (c->buffer != NULL) munmap(c->buffer, WINDOW);
  *c = (struct connection){.fd = -1};
}

static struct connection *connected(uint32_t id) {
  for (int i = 0; i < CONNECTIONS; i++)
    if (connections[i].fd >= 0 && connections[i].number == id) return &connections[i];
  return NULL;
}

static int accepted(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && errno != EAGAIN) usleep(1000); /* no descriptor: it will come again */
  return fd;
}

static void greet(int listener) {
  struct connection *c = connections;
  while (c < connections + CONNECTIONS && c->fd >= 0) c++;
  if (c == connections + CONNECTIONS) return;
  int fd = accepted(set.forwards[listener]);
  if (fd < 0) return;
  *c = (struct connection){.fd = fd, .number = ++last_connection};
  if ((c->buffer = pages(WINDOW)) == NULL) { close_connection(c, 0); return; }
  NUMBERS(c->number, OPENED, 0, set.ports[listener]);
}

/* Writes out what the controller sent; its end follows the last byte. */
static void pass(struct connection *c) {
  while (c->size > 0) {
    ssize_t size = send(c->fd, c->buffer, c->size, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) { close_connection(c, 1); return; }
    memmove(c->buffer, c->buffer + size, c->size -= size);
    c->written += size;
  }
  if (c->written > 0 && (c->size == 0 || c->written > WINDOW / 4)) {
    NUMBERS(c->number, ACK, 0, c->written);
    c->written = 0;
  }
  if (c->end_after == 1 && c->size == 0) {
    shutdown(c->fd, SHUT_WR);
    c->end_after = 2;
  }
  if (c->end_after == 2 && c->ended) close_connection(c, 1);
}

static void listen_to(struct connection *c) {
  ssize_t size = recv(c->fd, copy, sizeof copy / 2, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0) { close_connection(c, 1); return; }
  struct field part = {copy, size};
  if (size > 0) c->unread += size, frame(c->number, DATA, 0, 1, &part);
  else c->ended = 1, frame(c->number, END, 0, 0, NULL), pass(c);
}

static int do_data(uint32_t id, struct field *f) {
  struct connection *c = connected(id);
  if (c == NULL) return -1; /* it was closed meanwhile */
  if (c->size + f[0].size > WINDOW || c->end_after) { close_connection(c, 1); return -1; }
  memcpy(c->buffer + c->size, f[0].at, f[0].size);
  c->size += f[0].size;
  pass(c);
  return -1;
}

static int do_ack(uint32_t id, struct field *f) {
  struct connection *c = connected(id);
  if (c != NULL) c->unread -= number(f[0]) < c->unread ? number(f[0]) : c->unread;
  return -1;
}

static int do_end(uint32_t id, struct field *f) {
  struct connection *c = connected(id);
  (void)f;
  if (c != NULL && c->end_after == 0) c->end_after = 1, pass(c);
  return -1;
}

static int do_close(uint32_t id, struct field *f) {
  struct connection *c = connected(id);
  (void)f;
  if (c != NULL) close_connection(c, 0);
  return -1;
}

/* Reports of programs inside: one line, passed on, then `ok`. */

static void dismiss(struct client *c, const char *answer) {
  if (answer != NULL) send(c->fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
  close(c->fd);
  if (c->line != NULL) munmap(c->line, REPORT_BYTES);
  *c = (struct client){.fd = -1};
}

static void welcome(void) {
  struct client *c = clients;
  while (c < clients + CLIENTS && c->fd >= 0) c++;
  if (c == clients + CLIENTS) return;
  int fd = accepted(set.reports);
  if (fd < 0) return;
  *c = (struct client){.fd = fd, .deadline = now() + 10, .line = pages(REPORT_BYTES)};
  if (c->line == NULL) dismiss(c, "error: no memory\n");
}

static void hear(struct client *c) {
  size_t room = REPORT_BYTES - c->size;
  ssize_t size = recv(c->fd, room ? c->line + c->size : (char *)copy, room ? room : COPY, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) { dismiss(c, NULL); return; }
  if (room == 0) return; /* what follows a line too long is read, or no answer is seen */
  char *end = memchr(c->line + c->size, '\n', size);
  c->size += size;
  if (end == NULL) {
    static const char answer[] = "error: more than 64 KiB\n";
    if (c->size == REPORT_BYTES) {
      send(c->fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      shutdown(c->fd, SHUT_WR);
    }
    return;
  }
  size = end - c->line;
  if (reported == REPORTS) { dismiss(c, "error: too many reports\n"); return; }
  if (reported_bytes + size > ALL_REPORT_BYTES) {
    dismiss(c, "error: the reports are too large together\n");
    return;
  }
  reported++, reported_bytes += size;
  uint64_t micro = htobe64((now() - started) * 1e6);
  struct field fields[] = {{(void *)&micro, 8}, {(void *)c->line, size}};
  frame(0, REPORTED, 0, 2, fields);
  dismiss(c, "ok\n");
}

/* The loop. */

static const struct { int fields; int (*run)(uint32_t, struct field *); } operations[] = {
    [EXEC] = {2, do_exec}, [SPAWN] = {2, do_spawn}, [POLL] = {2, do_poll},
    [SEND] = {3, do_send}, [KILL] = {1, do_kill}, [READ] = {2, do_read},
    [WRITE] = {3, do_write}, [LIST] = {1, do_list}, [PROCS] = {0, do_processes},
    [QUIET] = {0, do_quiet}, [PACK] = {1, do_pack}, [UNPACK] = {3, do_unpack},
    [DATA] = {1, do_data}, [ACK] = {1, do_ack}, [END] = {0, do_end},
    [CLOSED] = {0, do_close}};

static void serve(const unsigned char *header, const unsigned char *body, size_t size) {
  struct field fields[FIELDS] = {0};
  uint32_t id, length;
  int op = header[4], count = header[6] << 8 | header[7], known;
  size_t at = 0;
  memcpy(&id, header, 4);
  id = ntohl(id);
  why = NULL;
  known = op < (int)(sizeof operations / sizeof *operations) && operations[op].run;
  for (int i = 0; i < count && i < FIELDS && at != SIZE_MAX; i++) {
    if (size - at >= 4) memcpy(&length, body + at, 4), length = ntohl(length);
    if (size - at < 4 || size - at - 4 < length) { at = SIZE_MAX; break; }
    fields[i] = (struct field){body + at + 4, length};
    at += 4 + length;
  }
  if (!known || count != operations[op].fields || at != size) {
    why = known ? "a malformed request" : "an unknown request";
    refuse(id, READY, EPROTO);
    return;
  }
  int error = operations[op].run(id, fields);
  if (error > 0) refuse(id, op, error);
  if (error == 0) frame(id, op, 0, 0, NULL);
}

static void receive(void) {
  ssize_t size = read(set.in, incoming + received, sizeof incoming - received);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) _exit(0); /* the controller is gone */
  received += size;
  size_t at = 0;
  while (received - at > 0) {
    uint64_t length;
    size_t left = received - at;
    if (skipping) {
      size_t part = skipping < left ? skipping : left;
      skipping -= part, at += part;
      continue;
    }
    if (left < HEADER) break;
    memcpy(&length, incoming + at + 8, 8);
    length = be64toh(length);
    if (length > MAX_BODY) {
      uint32_t id;
      memcpy(&id, incoming + at, 4);
      why = "a request beyond its bound";
      refuse(ntohl(id), READY, EMSGSIZE);
      skipping = length, at += HEADER;
      continue;
    }
    if (left < HEADER + length) break;
    serve(incoming + at, incoming + at + HEADER, length);
    at += HEADER + length;
  }
  memmove(incoming, incoming + at, received -= at);
  if (received == 0 && at > COPY) madvise(incoming, sizeof incoming, MADV_DONTNEED);
}

enum kind { REQUESTS, CHILDREN, REPORTING, ARRIVAL, OUTPUT, INPUT, CLIENT, CONNECTION };

static struct pollfd polled[4 + LISTENERS + CLIENTS + CONNECTIONS +
                            2 * (COMMANDS + FINISHED + 2)];
static struct { enum kind kind; int index; struct command *command; } whose[
    sizeof polled / sizeof *polled];
static int polls;

static void want(int fd, int events, enum kind kind, int index, struct command *c) {
  if (polls == (int)(sizeof polled / sizeof *polled)) return;
  polled[polls] = (struct pollfd){fd, events, 0};
  whose[polls].kind = kind, whose[polls].index = index, whose[polls++].command = c;
}

/* Fills `polled`; gives the time at which something is due without an event. */
static double prepare(void) {
  double due = started + set.lifetime;
  int free_client = 0, free_connection = 0;
  polls = 0;
  want(set.in, POLLIN, REQUESTS, 0, NULL);
  want(set.signals, POLLIN, CHILDREN, 0, NULL);
  if (children && next_watch < due) due = next_watch;
  for (struct command *c = commands; c != NULL; c = c->next) {
    if (running(c) && c->request && !c->timed_out && c->deadline < due) due = c->deadline;
    if (c->poller && c->poll_end < due) due = c->poll_end;
    if (c->out >= 0) want(c->out, POLLIN, OUTPUT, 0, c);
    if (c->in >= 0 && c->pending > 0) want(c->in, POLLOUT, INPUT, 0, c);
  }
  for (int i = 0; i < CLIENTS; i++) {
    free_client |= clients[i].fd < 0;
    if (clients[i].fd < 0) continue;
    want(clients[i].fd, POLLIN, CLIENT, i, NULL);
    if (clients[i].deadline < due) due = clients[i].deadline;
  }
  for (int i = 0; i < CONNECTIONS; i++) {
    struct connection *c = &connections[i];
    free_connection |= c->fd < 0;
    int in = !c->ended && c->unread < WINDOW ? POLLIN : 0;
    if (c->fd >= 0) want(c->fd, in | (c->size > 0 ? POLLOUT : 0), CONNECTION, i, NULL);
  }
  if (free_client) want(set.reports, POLLIN, REPORTING, 0, NULL);
  for (int i = 0; i < set.listeners && free_connection; i++)
    want(set.forwards[i], POLLIN, ARRIVAL, i, NULL);
  return due;
}

static void dispatch(int i) {
  struct signalfd_siginfo gone[16];
  int at = whose[i].index, events = polled[i].revents;
  struct connection *c = &connections[at];
  switch (whose[i].kind) {
    case REQUESTS: receive(); break;
    case CHILDREN: if (read(set.signals, gone, sizeof gone) < 0) break; break;
    case REPORTING: welcome(); break;
    case ARRIVAL: greet(at); break;
    case OUTPUT: drain(whose[i].command); break;
    case INPUT: feed(whose[i].command); break;
    case CLIENT: hear(&clients[at]); break;
    case CONNECTION:
      if (c->fd != polled[i].fd) break; /* closed meanwhile */
      if (events & POLLOUT) pass(c);
      if (c->fd != polled[i].fd) break;
      if (events & POLLIN) listen_to(c);
      else if (events & (POLLERR | POLLHUP | POLLNVAL)) close_connection(c, 1);
  }
}

static void loop(void) {
  NUMBERS(0, READY, 0, overlaid);
  for (;;) {
    double left = prepare() - now();
    int wait = left <= 0 ? 0 : left > 3600 ? 3600000 : (int)(left * 1e3) + 1;
    int ready = poll(polled, polls, wait);
    /* Requests come last: they may end what another event is about. */
    for (int i = polls - 1; i >= 0 && ready > 0; i--)
      if (polled[i].revents) dispatch(i);
    reap();
    watch();
    for (int i = 0; i < CLIENTS; i++)
      if (clients[i].fd >= 0 && now() > clients[i].deadline)
        dismiss(&clients[i], "error: no report in time\n");
  }
}

/* The start. */

static void mount_folders(int lower) {
  char options[128];
  snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=0755",
           (unsigned long long)set.disk, (unsigned long long)set.inodes);
  int flags = MS_NOSUID | MS_NODEV;
  struct stat info;
  for (int i = 0; i < set.mounts; i++) {
    const char *at = set.folders[i];
    if (lower && !strcmp(at, WORKSPACE)) {
      /* The upper directory counts against the bound like any other workspace.
         Where files would not be the user's own, the overlay is no use. */
      if (mount("tmpfs", UPPER, "tmpfs", flags, options)) die(UPPER);
      overlaid =
          stat(LOWER, &info) == 0 && info.st_uid == getuid() &&
          mkdir(UPPER "/up", 0755) == 0 && mkdir(UPPER "/work", 0755) == 0 &&
          mount("overlay", WORKSPACE, "overlay", flags,
                "lowerdir=" LOWER ",upperdir=" UPPER "/up,workdir=" UPPER
                "/work,userxattr") == 0;
      umount2(UPPER, MNT_DETACH);
      umount2(LOWER, MNT_DETACH);
      if (overlaid) continue;
    }
    if (mount("tmpfs", at, "tmpfs", flags, options)) die(at);
  }
  if (mount("tmpfs", "/run/sandbox", "tmpfs", flags | MS_NOEXEC,
            "size=64k,nr_inodes=16,mode=0755"))
    die("/run/sandbox");
  /* Terminals: few, for they are scarce on the host. */
  if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620,max=32"))
    die("/dev/pts");
}

static int listening(int family, struct sockaddr *address, socklen_t size) {
  int yes = 1, fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (fd < 0 || bind(fd, address, size) || listen(fd, 64)) return -1;
  return fd;
}

static void open_sockets(void) {
  struct sockaddr_un report = {AF_UNIX, REPORT};
  if (mkdir("/run/sandbox", 0755) && errno != EEXIST && errno != EROFS) die(REPORT);
  unlink(REPORT);
  set.reports = listening(AF_UNIX, (void *)&report, sizeof report);
  if (set.reports < 0 || chmod(REPORT, 0666)) die(REPORT);
  if (set.mount && mount(NULL, "/run/sandbox", NULL,
                         MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
    die("/run/sandbox");
  for (int i = 0; i < set.listeners; i++) {
    struct sockaddr_in local = {AF_INET, htons(set.ports[i]), {htonl(INADDR_LOOPBACK)}, {0}};
    set.forwards[i] = listening(AF_INET, (void *)&local, sizeof local);
    if (set.forwards[i] < 0) die("the forwarded port");
  }
}

/* Refuses calls that no task needs: attacks on the kernel, keys of the caller,
   and, where no cgroup counts it, memory that is of no process. */
static void refuse_calls(void) {
  static const int always[] = {SYS_keyctl, SYS_add_key, SYS_request_key, SYS_bpf,
                               SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup,
                               SYS_io_uring_enter, SYS_io_uring_register, SYS_kexec_load,
                               SYS_vmsplice, SYS_setns, SYS_mount, SYS_move_mount,
                               SYS_fsopen, SYS_open_tree, SYS_pivot_root, SYS_swapon,
                               SYS_memfd_create, SYS_shmget};
  int count = sizeof always / sizeof *always - (set.seal ? 0 : 2), at = 0;
  struct sock_filter filter[64];
#if defined(__x86_64__)
  unsigned arch = AUDIT_ARCH_X86_64;
#else
  unsigned arch = AUDIT_ARCH_AARCH64;
#endif
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, arch));
  filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 0,
                                              (unsigned char)(count + 3));
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, nr));
  filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000,
                                              (unsigned char)(count + 1), 0);
  for (int i = 0; i < count; i++)
    filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, always[i],
                                                (unsigned char)(count - i), 0);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  struct sock_fprog program = {at, filter};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) die("seccomp");
}

/* Gives up all privilege for good. */
static void drop(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {0};
  /* A user namespace made inside could mount unbounded memory. */
  int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
  if ((fd < 0 || write(fd, "0", 1) != 1) && set.mount) die("user namespaces");
  if (fd >= 0) close(fd);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (syscall(SYS_capset, &header, none)) die("capset");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
  refuse_calls();
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) die("dumpable"); /* no ptrace, no /proc/1/fd */
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void limit(const char *text) {
  static const struct { const char *name; int what; } names[] = {
      {"nproc=", RLIMIT_NPROC}, {"data=", RLIMIT_DATA}, {"fsize=", RLIMIT_FSIZE},
      {"nofile=", RLIMIT_NOFILE}, {"cpu=", RLIMIT_CPU}, {"core=", RLIMIT_CORE}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t size = strlen(names[i].name);
    if (strncmp(text, names[i].name, size)) continue;
    set.limits[set.limited].what = names[i].what;
    set.limits[set.limited++].value = strtoull(text + size, NULL, 10);
    return;
  }
  errno = EINVAL;
  die(text);
}

static void read_arguments(int argc, char **argv, int *lower) {
  set.env = calloc(argc + 2, sizeof *set.env);
  if (set.env == NULL) die("memory");
  for (int i = 1; i < argc; i++) {
    char *name = argv[i], *value = strchr(name, '=');
    size_t size = value == NULL ? strlen(name) : (size_t)(++value - name);
    uint64_t amount = value == NULL ? 0 : strtoull(value, NULL, 10);
#define IS(text) (size == strlen(text) && !strncmp(name, text, size))
    if (IS("--mount")) set.mount = 1;
    else if (IS("--lower")) *lower = 1;
    else if (IS("--seal")) set.seal = 1;
    else if (IS("--disk=")) set.disk = amount;
    else if (IS("--inodes=")) set.inodes = amount;
    else if (IS("--memory=")) set.memory = amount;
    else if (IS("--output=") && amount > 0) set.keep = amount;
    else if (IS("--lifetime=")) set.lifetime = amount / 1e3;
    else if (IS("--watch=") && amount > 0) set.watch = amount / 1e3;
    else if (IS("--limit=") && set.limited < 8) limit(value);
    else if (IS("--env=")) set.env[set.envs++] = value;
    else if (IS("--folder=") && set.mounts < 32) set.folders[set.mounts++] = value;
    else if (IS("--forward=") && set.listeners < LISTENERS)
      set.ports[set.listeners++] = amount;
    else if (!IS("--label=")) errno = EINVAL, die(name);
  }
}

/* The launcher: joins cgroups, becomes a user of its own, starts bwrap. */

/* Shows `folder` at /tmp of a mount namespace of its own, its owner's files as the
   user's, for only root may do that and only here do we still know both. An empty
   directory where that can't be done: the server then asks for a copy. */
static void show_lower(const char *folder, unsigned uid) {
  struct mount_attr as_user = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY};
  struct stat info;
  char path[64], map[64];
  int tree = -1, shown = 0, go[2];
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
    die("a mount namespace");
  if (pipe2(go, O_CLOEXEC) || stat(folder, &info)) die(folder);
  pid_t child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    close(go[1]);
    _exit(read(go[0], path, 1) != 0);
  }
  for (int i = 0; child > 0 && i < 2; i++) {
    snprintf(path, sizeof path, "/proc/%d/%s", child, i ? "gid_map" : "uid_map");
    snprintf(map, sizeof map, "%u %u 1", i ? info.st_gid : info.st_uid, uid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, map, strlen(map)) < 0) tree = -2;
    close(fd);
  }
  snprintf(path, sizeof path, "/proc/%d/ns/user", child);
  int users = tree == -1 && child > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  as_user.userns_fd = users;
  if (users >= 0)
    tree = syscall(SYS_open_tree, AT_FDCWD, folder, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (tree >= 0)
    shown = !syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &as_user,
                     sizeof as_user) &&
            !syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH);
  close(go[0]);
  close(go[1]);
  if (child > 0) waitpid(child, NULL, 0);
  if (!shown && mount("tmpfs", "/tmp", "tmpfs", MS_RDONLY, "size=4k")) die("/tmp");
}

static void memory_file(int want, const char *text) {
  int fd = memfd_create("sandbox", 0);
  if (fd < 0 || write_all(fd, (void *)text, strlen(text)) || lseek(fd, 0, SEEK_SET) < 0 ||
      fd != want)
    die("a file in memory");
}

/* --launch [--join=FILE]... [--uid=N] [--lower=DIR] [--label=TEXT] -- PROGRAM... */
static void launch(int argc, char **argv) {
  char *lower = NULL;
  unsigned uid = 0;
  int i = 2;
  close_range(3, ~0U, 0);
  /* Descriptors 3, 4 and 5 of the program: it is told of them by its arguments. */
  memory_file(3, "root:x:0:0:root:/:/bin/sh\n"
                 "user:x:1000:1000:user:/tmp/home:/bin/bash\n");
  memory_file(4, "root:x:0:\nuser:x:1000:\n");
  if (open("/proc/self/exe", O_RDONLY) != 5) die("the server's own file");
  for (; i < argc && strcmp(argv[i], "--"); i++) {
    char *value = strchr(argv[i], '=');
    value = value == NULL ? argv[i] : value + 1;
    if (!strncmp(argv[i], "--join=", 7)) {
      int fd = open(value, O_WRONLY | O_CLOEXEC);
      if (fd < 0 || write(fd, "0", 1) != 1) die(value);
      close(fd);
    } else if (!strncmp(argv[i], "--uid=", 6)) {
      uid = strtoul(value, NULL, 10);
    } else if (!strncmp(argv[i], "--lower=", 8)) {
      lower = value;
    }
  }
  if (lower != NULL) show_lower(lower, uid);
  if (uid && (syscall(SYS_setgroups, 0, NULL) || setresgid(uid, uid, uid) ||
              setresuid(uid, uid, uid)))
    die("another user");
  if (i + 1 < argc) execv(argv[i + 1], argv + i + 1);
  die("bwrap");
}

int main(int argc, char **argv) {
  struct rlimit files;
  sigset_t signals;
  int lower = 0;
  for (int i = 1; i < 32; i++) signal(i, SIG_DFL);
  if (argc > 2 && !strcmp(argv[1], "--launch")) launch(argc, argv);
  close_range(3, ~0U, 0);
  signal(SIGPIPE, SIG_IGN);
  umask(022);
  read_arguments(argc, argv, &lower);
  started = now();
  if (set.mount) mount_folders(lower);
  open_sockets();
  drop();
  for (int i = 0; i < set.mounts; i++)
    if (!set.mount && mkdir(set.folders[i], 0755) && errno != EEXIST)
      die(set.folders[i]);
  mkdir("/tmp/home", 0755);
  if (chdir(WORKSPACE)) die(WORKSPACE);
  for (int i = 0; i < CLIENTS; i++) clients[i].fd = -1;
  for (int i = 0; i < CONNECTIONS; i++) connections[i].fd = -1;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_SETMASK, &signals, NULL);
  set.signals = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  proc = opendir("/proc");
  set.in = fcntl(0, F_DUPFD_CLOEXEC, 100);
  set.out = fcntl(1, F_DUPFD_CLOEXEC, 100);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (set.signals < 0 || proc == NULL || set.in < 0 || set.out < 0 || null < 0)
    die("the streams");
  fcntl(set.in, F_SETFL, fcntl(set.in, F_GETFL) | O_NONBLOCK);
  fcntl(set.out, F_SETFL, fcntl(set.out, F_GETFL) | O_NONBLOCK);
  for (int i = 0; i < 3; i++) dup2(null, i);
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  loop();
}

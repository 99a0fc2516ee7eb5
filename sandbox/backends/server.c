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
#define DEVICES "/run/devices"

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
  LATERS = 1 << 18, /* links and folders of a snapshot */
  LISTENERS = 16,
  KILL_ROUNDS = 20,
  KILL_SECONDS = 3,
};

enum {
  READY, EXEC, SPAWN, POLL, SEND, KILL, READ, WRITE, LIST, PROCS, QUIET, PACK, UNPACK,
  CANCEL,
  OPENED = 20, DATA, ACK, END, CLOSED, REPORTED
};
enum { MORE = 1, ERROR = 2 };

struct field { const unsigned char *at; size_t size; };

struct command {
  struct command *next;
  uint32_t request, poller; /* the exec or poll that waits; 0 if none */
  uint32_t number, spawner; /* in the background; the request for it */
  pid_t pid;
  int out, in, pty, done, code, timed_out, out_of_memory, eof;
  double started, deadline, poll_end, look; /* look: when at a terminal nobody has */
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
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

#include "server/processes.c"
#include "server/frames.c"
#include "server/commands.c"
#include "server/files.c"
#include "server/snapshots.c"
#include "server/sockets.c"
#include "server/start.c"
#include "server/launch.c"

static const struct {
  int fields;
  int (*run)(uint32_t, struct field *);
} operations[] = {
    [EXEC] = {2, do_exec}, [SPAWN] = {2, do_spawn}, [POLL] = {2, do_poll},
    [SEND] = {3, do_send}, [KILL] = {1, do_kill}, [READ] = {2, do_read},
    [WRITE] = {3, do_write}, [LIST] = {1, do_list}, [PROCS] = {0, do_processes},
    [QUIET] = {0, do_quiet}, [PACK] = {2, do_pack}, [UNPACK] = {3, do_unpack},
    [CANCEL] = {1, do_cancel},
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
  double due = started + set.lifetime, time = now();
  int free_client = 0, free_connection = 0;
  polls = 0;
  want(set.in, POLLIN, REQUESTS, 0, NULL);
  want(set.signals, POLLIN, CHILDREN, 0, NULL);
  if (children && next_watch < due) due = next_watch;
  for (struct command *c = commands; c != NULL; c = c->next) {
    if (running(c) && c->request && !c->timed_out && c->deadline < due)
      due = c->deadline;
    if (c->poller && c->poll_end < due) due = c->poll_end;
    if (c->out >= 0 && c->look <= time) want(c->out, POLLIN, OUTPUT, 0, c);
    if (c->out >= 0 && c->look > time && c->look < due) due = c->look;
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

/* Commands: in the foreground, which answer when they end, and in the background,
   which are asked. Of an output its head and tail are kept, and a count. */

static void keep(struct command *c, const unsigned char *data, size_t size) {
  size_t room = set.keep - c->head, first = size < room ? size : room;
  memcpy(c->kept + c->head, data, first);
  c->head += first, c->total += first, data += first, size -= first;
  if (size > set.keep) {
    size_t skipped = size - set.keep;
    c->total += skipped, data += skipped, size = set.keep;
  }
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
    if (size > 0) { keep(c, copy, size), c->look = 0; continue; }
    /* A terminal that nobody has open reads as EIO. Closing ours would kill a leader
       that has closed its streams and not exited, as cat does, by SIGHUP; and it may
       be opened again. Until then it would end every poll at once. */
    if (c->pty && !c->done) { c->look = now() + set.watch; return; }
    close(c->out);
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
    c->done = 1;
    drain(c);
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

/* Becomes what a shell would only replace itself by: `exec` and plain words. Returns
   where it is something else, or is not found, which the shell says in its words. */
static void become_named(char *text) {
  char *words[16], *rest = NULL;
  int count = 0;
  size_t plain = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                              "0123456789/._- ");
  if (strncmp(text, "exec ", 5) || text[5] == '-' || text[plain] ||
      (text = strdup(text + 5)) == NULL)
    return;
  for (char *word = strtok_r(text, " ", &rest); count < 15 && word != NULL;
       word = strtok_r(NULL, " ", &rest))
    words[count++] = word;
  words[count] = NULL;
  environ = set.env;
  if (count > 0 && count < 15) execvp(words[0], words);
}

/* In the child: streams, bounds, then the shell, in the folder in which we are also
   where its owner has shut it. Never returns. */
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
  int bad = 0;
  for (int i = 0; i < set.limited; i++) {
    struct rlimit limit = {set.limits[i].value, set.limits[i].value};
    bad |= setrlimit(set.limits[i].what, &limit);
  }
  if (pty) set.env[set.envs] = term;
  const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
  char *argv[] = {(char *)shell, "-c", text, NULL};
  if (!bad) become_named(text), execve(shell, argv, set.env);
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
  c->number = ++last_number, c->spawner = id;
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

/* Ends the command of an exec or a spawn that nobody waits for any more. */
static int do_cancel(uint32_t id, struct field *f) {
  struct command *c = commands;
  (void)id;
  while (c != NULL && (c->request ? c->request : c->spawner) != number(f[0]))
    c = c->next;
  if (c == NULL) return 0;
  c->request = number(f[0]); /* so that it is forgotten when it has ended */
  if (running(c)) kill_tree(c);
  reap();
  return 0;
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

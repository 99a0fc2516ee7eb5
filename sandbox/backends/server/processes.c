/* What runs in the sandbox: who is whose, what it takes, and how it ends; and the
   bounds in time and memory, which hold also while a reply waits. */

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
      int parent = 0, session = 0, threads = 0;
      if (rest != NULL)
        sscanf(rest + 1,
               " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
               &state, &parent, &session, &threads);
      p->parent = parent, p->session = session;
      /* Its first thread may have ended, and the others run on. */
      p->alive = (state != 'Z' && state != 'X') || threads > 1;
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
   waited for, KILL_SECONDS at most: the kernel needs time to take down what was
   large, and each of them needs a turn on a core to die. */
static void kill_tree(struct command *c) {
  pid_t newest = 0;
  double end = now() + KILL_SECONDS;
  for (int growing = 0; now() < end;) {
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

static unsigned long resident(const char *path) {
  char text[128];
  unsigned long pages = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size < 0 ? 0 : size] = 0;
  sscanf(text, "%*u %lu", &pages);
  return pages;
}

/* Resident bytes of all processes but this one, shared pages counted twice. */
static uint64_t memory_in_use(void) {
  uint64_t total = 0;
  char path[64];
  size_t count = scan(0);
  for (size_t i = 0; i < count; i++) {
    snprintf(path, sizeof path, "/proc/%d/statm", table[i].pid);
    unsigned long pages = resident(path);
    snprintf(path, sizeof path, "/proc/%d/task", table[i].pid);
    /* Without its first thread it shows none: what it has, another shows. */
    DIR *threads = pages ? NULL : opendir(path);
    for (struct dirent *e; threads && !pages && (e = readdir(threads)) != NULL;) {
      if (*e->d_name == '.') continue;
      snprintf(path, sizeof path, "/proc/%d/task/%.20s/statm", table[i].pid, e->d_name);
      pages = resident(path);
    }
    if (threads) closedir(threads);
    total += pages;
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
    if (!running(c) || !c->request || time < c->deadline) continue;
    if (!c->timed_out) {
      c->timed_out = 1;
      kill_tree(c);
    } else if (time >= c->deadline + 2) {
      kill_tree(NULL); /* it has ended, but who traces it does not let it go */
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

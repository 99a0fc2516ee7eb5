/* Snapshots on the way in: files first, then links, then times and modes of folders;
   what would leave the root, itself or by a link, is dropped, but for a fork's links:
   they come when all else is written. Comes in parts, one snapshot at a time. */

enum { FIRST = 1, LAST = 2, EXACT = 4 }; /* of a part; EXACT: shut stays shut, and
                                            links that lead out of the root stay */

struct later { /* a link, or where `target` is NULL a folder */
  char *path, *target;
  uint32_t mode;
  uint64_t seconds;
};

static struct {
  uint32_t id;
  char root[PATH_MAX], name[PATH_MAX], target[PATH_MAX];
  unsigned char entry[25];
  enum { IN_ENTRY, IN_NAME, IN_DATA } phase;
  size_t got, laters;
  uint32_t mode, name_size;
  uint64_t seconds, left, dropped;
  struct later *later;
  int fd, error, ended, exact;
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

/* What an entry's mode becomes: whoever reads next is the owner, and to him nothing
   may be shut, unless all is to be as it was. */
static mode_t mode_of(uint32_t mode, mode_t own) {
  return un.exact ? mode & 07777 : (mode & 0777) | own;
}

static void remember(const char *path, const char *target) {
  void *more = un.laters < LATERS ? un.later : NULL;
  if (un.laters % 256 == 0 && un.laters < LATERS)
    more = realloc(un.later, (un.laters + 256) * sizeof *un.later);
  if (more == NULL) { fail(ENOMEM); return; }
  un.later = more;
  struct later *at = &un.later[un.laters];
  *at = (struct later){strdup(path), target ? strdup(target) : NULL, un.mode,
                       un.seconds};
  if (at->path && (at->target || !target)) un.laters++;
  else fail(ENOMEM);
}

/* Ends the entry whose data has come. */
static void end_entry(void) {
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", un.root, un.name);
  if (un.fd >= 0) {
    struct timespec times[2] = {{un.seconds, 0}, {un.seconds, 0}};
    fchmod(un.fd, mode_of(un.mode, 0600));
    futimens(un.fd, times);
    if (close(un.fd)) fail(errno);
    un.fd = -1;
  } else if (un.entry[0] == 'l' && un.error == 0) {
    un.target[un.got] = 0;
    remember(path, un.target);
  } else if (un.entry[0] == 'd' && un.error == 0) {
    remember(path, NULL);
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
  struct later *end = un.later + un.laters;
  for (struct later *at = un.later; at < end; at++) {
    if (at->target == NULL) continue;
    if (!stays(at->path, un.root)) { un.dropped++; continue; } /* by another */
    int error = make_folders(at->path);
    if (error == 0 && symlink(at->target, at->path)) error = errno;
    if (error && error != EEXIST && error != ENOTDIR) fail(error);
  }
  for (struct later *at = un.later; at < end; at++) {
    if (at->target == NULL) continue;
    struct timespec times[2] = {{at->seconds, 0}, {at->seconds, 0}};
    if (un.exact || stays(at->path, un.root))
      utimensat(AT_FDCWD, at->path, times, AT_SYMLINK_NOFOLLOW);
    else if (unlink(at->path) == 0)
      un.dropped++;
  }
}

/* Those below first, for a folder may shut itself. None of this snapshot's links can
   stand where it has a folder, so that no path leads out by one. */
static void finish_folders(void) {
  for (struct later *at = un.later + un.laters; at-- > un.later;) {
    struct timespec times[2] = {{at->seconds, 0}, {at->seconds, 0}};
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = at->target == NULL ? open(at->path, flags) : -1;
    if (fd < 0) continue;
    futimens(fd, times);
    fchmod(fd, mode_of(at->mode, 0700));
    close(fd);
  }
}

static void forget_laters(void) {
  for (struct later *at = un.later; at < un.later + un.laters; at++)
    free(at->path), free(at->target);
  free(un.later);
  un.later = NULL, un.laters = 0;
}

static int do_unpack(uint32_t id, struct field *f) {
  int flags = number(f[1]);
  if (flags & FIRST) {
    if (un.fd >= 0) close(un.fd);
    forget_laters(); /* of one that was given up half-way */
    un.fd = -1, un.id = id, un.error = un.ended = 0, un.exact = flags & EXACT;
    un.phase = IN_ENTRY, un.got = un.dropped = 0;
    int error = path_of(f[0], un.root);
    if (error) fail(error);
  }
  if (un.id != id) return EINVAL;
  take(f[2].at, f[2].size);
  if (!(flags & LAST)) return -1;
  if (!un.ended) fail(EBADMSG);
  if (un.error == 0) make_links();
  if (un.error == 0) finish_folders();
  forget_laters();
  if (un.error) return un.error;
  NUMBERS(id, UNPACK, 0, un.dropped);
  return -1;
}

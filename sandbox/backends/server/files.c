/* Files one by one, lists and snapshots. Nothing here waits for a FIFO, and what the
   agent shut is opened meanwhile: it is the same user's. */

/* A path relative to the workspace, as text. */
static int path_of(struct field f, char *path) {
  const char *base = f.size > 0 && f.at[0] == '/' ? "" : WORKSPACE "/";
  if (memchr(f.at, 0, f.size) != NULL) return EINVAL;
  if (strlen(base) + f.size >= PATH_MAX) return ENAMETOOLONG;
  snprintf(path, PATH_MAX, "%s%.*s", base, (int)f.size, (const char *)f.at);
  return 0;
}

/* Makes the folders above `path`. Mostly the last is there, or lacks alone, so that
   it is tried first: of a path a thousand deep the walk from the top is dear. */
static int make_folders(const char *path) {
  char part[PATH_MAX];
  const char *at = strrchr(path, '/');
  for (int whole = 0; at != NULL && at > path; at = strchr(at + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
    if (mkdir(part, 0755) == 0 || errno == EEXIST || errno == EROFS) continue;
    if (errno != ENOENT || whole++) return errno;
    at = path; /* from the top */
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
static int put_entry(char kind, const char *name, const struct stat *info,
                     uint64_t size) {
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

struct opened { char *path; mode_t mode; struct opened *before; };

/* Entries of a folder by name; one that its owner shut is opened, and kept in mind. */
static int entries(const char *path, mode_t mode, struct dirent ***names,
                   struct opened **opened) {
  int count = scandir(path, names, not_dots, alphasort);
  if (count >= 0 || errno != EACCES || chmod(path, 0700)) return count;
  struct opened *one = malloc(sizeof *one);
  if (one != NULL) *one = (struct opened){strdup(path), mode & 07777, *opened};
  if (one != NULL) *opened = one;
  return scandir(path, names, not_dots, alphasort);
}

/* Shuts again what was opened, those below first. */
static void shut(struct opened *one) {
  while (one != NULL) {
    struct opened *before = one->before;
    if (one->path != NULL) chmod(one->path, one->mode);
    free(one->path);
    free(one);
    one = before;
  }
}

/* Calls `visit` on all below `root`, parents first, by name, and on itself, as `.`,
   where `whole`. What can't be seen (a path longer than the system takes, what
   vanished) is left out. */
static int walk(const char *root, int whole,
                int (*visit)(const char *name, const char *path, struct stat *info)) {
  char path[PATH_MAX], **stack = malloc(sizeof *stack), **more;
  struct opened *opened = NULL;
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
      if (!top || whole) error = visit(top ? "." : name, path, &info);
      if (error == 0 && (top || S_ISDIR(info.st_mode)))
        count = entries(path, info.st_mode, &below, &opened);
      if (count < 0 && top) error = errno;
    } else if (error == 0 && top) {
      error = errno;
    }
    if (count > 0) {
      more = realloc(stack, (depth + count) * sizeof *stack);
      if (more != NULL) stack = more;
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
  shut(opened);
  return error;
}

static int stream(uint32_t id, int op, uint64_t limit, const char *root,
                  int (*visit)(const char *, const char *, struct stat *)) {
  stream_id = id, stream_op = op, pack_left = limit, packed_size = 0;
  int error = walk(root, op == PACK, visit);
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
  char path[PATH_MAX];
  int error = path_of(f[0], path);
  return error ? error : stream(id, PACK, number(f[1]), path, pack_one);
}

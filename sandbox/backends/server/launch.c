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
    tree = syscall(SYS_open_tree, AT_FDCWD, folder,
                   OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (tree >= 0)
    shown = !syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &as_user,
                     sizeof as_user) &&
            !syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp",
                     MOVE_MOUNT_F_EMPTY_PATH);
  close(go[0]);
  close(go[1]);
  if (child > 0) waitpid(child, NULL, 0);
  if (!shown && mount("tmpfs", "/tmp", "tmpfs", MS_RDONLY, "size=4k")) die("/tmp");
}

static void memory_file(int want, const char *text) {
  int fd = memfd_create("sandbox", 0);
  if (fd != want || write_all(fd, (void *)text, strlen(text)) ||
      lseek(fd, 0, SEEK_SET) < 0)
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

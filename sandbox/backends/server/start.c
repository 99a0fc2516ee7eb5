/* The start: arguments, mounts, sockets, then all privilege is given up for good. */

/* Makes /dev of the few devices that are shown, of the host's, which lie at DEVICES
   until then. bwrap would read all mounts there are for each of them. */
static void make_devices(void) {
  static const char *const devices[] = {"null", "zero", "full", "random", "urandom",
                                        "tty"};
  static const char *const links[][2] = {
      {"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
      {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"},
      {"/tmp", "/dev/shm"}, {"pts/ptmx", "/dev/ptmx"}};
  char from[64], to[64];
  int flags = MS_NOSUID | MS_NOEXEC;
  if (mount("tmpfs", "/dev", "tmpfs", flags, "size=64k,nr_inodes=32,mode=0755"))
    die("/dev");
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    snprintf(from, sizeof from, DEVICES "/%s", devices[i]);
    snprintf(to, sizeof to, "/dev/%s", devices[i]);
    if (mknod(to, S_IFREG | 0444, 0) || mount(from, to, NULL, MS_BIND, NULL)) die(from);
  }
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    if (symlink(links[i][0], links[i][1])) die(links[i][1]);
  /* Terminals: few, for they are scarce on the host. */
  if (mkdir("/dev/pts", 0755) ||
      mount("devpts", "/dev/pts", "devpts", flags,
            "newinstance,ptmxmode=0666,mode=0620,max=32"))
    die("/dev/pts");
  if (umount2(DEVICES, MNT_DETACH)) die(DEVICES);
  if (mount(NULL, "/dev", NULL, MS_REMOUNT | MS_RDONLY | flags, NULL)) die("/dev");
}

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
          utimensat(AT_FDCWD, UPPER "/up",
                    (struct timespec[]){info.st_mtim, info.st_mtim}, 0) == 0 &&
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
  make_devices();
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
  int flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (set.mount && mount(NULL, "/run/sandbox", NULL, flags, NULL))
    die("/run/sandbox");
  for (int i = 0; i < set.listeners; i++) {
    struct sockaddr_in local = {
        AF_INET, htons(set.ports[i]), {htonl(INADDR_LOOPBACK)}, {0}};
    set.forwards[i] = listening(AF_INET, (void *)&local, sizeof local);
    if (set.forwards[i] < 0) die("the forwarded port");
  }
}

/* Refuses calls that no task needs: attacks on the kernel, keys of the caller, the
   host's log, and, where no cgroup counts it, memory that is of no process. */
static void refuse_calls(void) {
  static const int always[] = {
      SYS_keyctl, SYS_add_key, SYS_request_key, SYS_bpf, SYS_perf_event_open,
      SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
      SYS_kexec_load, SYS_syslog, SYS_unshare, SYS_setns, SYS_mount, SYS_move_mount,
      SYS_fsopen, SYS_open_tree, SYS_pivot_root, SYS_swapon,
      /* The last four only where no cgroup counts. */
      SYS_memfd_create, SYS_shmget, SYS_semget, SYS_msgget};
  /* Process 1 is of the same user as what it runs, who may starve it by these, or
     have the kernel kill it: what they are refused on is its number, or all the
     user's processes. */
  static const struct { int call, argument; unsigned value; } on_server[] = {
      {SYS_prlimit64, 0, 1}, {SYS_sched_setscheduler, 0, 1},
      {SYS_sched_setparam, 0, 1}, {SYS_sched_setattr, 0, 1},
      {SYS_sched_setaffinity, 0, 1}, {SYS_setpriority, 1, 1},
      {SYS_setpriority, 0, PRIO_USER}, {SYS_ioprio_set, 1, 1},
      {SYS_ioprio_set, 0, 3 /* IOPRIO_WHO_USER */}};
  int count = sizeof always / sizeof *always - (set.seal ? 0 : 4), at = 0;
  struct sock_filter filter[128];
  for (size_t i = 0; i < sizeof on_server / sizeof *on_server; i++) {
    size_t argument = offsetof(struct seccomp_data, args[on_server[i].argument]);
    struct sock_filter block[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, on_server[i].call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, on_server[i].value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};
    memcpy(filter + at, block, sizeof block);
    at += sizeof block / sizeof *block;
  }
#if defined(__x86_64__)
  unsigned arch = AUDIT_ARCH_X86_64;
#else
  unsigned arch = AUDIT_ARCH_AARCH64;
#endif
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, arch));
  filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 0,
                                              (unsigned char)(count + 9));
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, nr));
  filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000,
                                              (unsigned char)(count + 7), 0);
  for (int i = 0; i < count; i++)
    filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, always[i],
                                                (unsigned char)(count - i + 6), 0);
  /* Of sockets only what a network namespace holds: a virtual machine's AF_VSOCK
     leads to the host that runs it. */
  filter[at++] =
      (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, args[0]));
  static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
  for (int i = 0; i < 3; i++)
    filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, families[i],
                                                (unsigned char)(3 - i), 0);
  filter[at++] =
      (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                              SECCOMP_RET_ERRNO | EPERM);
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
  /* No ptrace, no /proc/1/fd. */
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) die("dumpable");
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

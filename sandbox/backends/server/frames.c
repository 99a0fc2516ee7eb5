/* Frames to the controller. Sending waits while it does not read, and holds all
   bounds meanwhile; when it is gone, so is the sandbox. */

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

static void frame(uint32_t id, int op, int flags, int count,
                  const struct field *fields) {
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

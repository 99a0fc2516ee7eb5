/* What programs inside connect to: forwarded ports and the socket for reports. No
   connection holds up another, and all of them are bounded. */

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
  if (c->size + f[0].size > WINDOW || c->end_after) return close_connection(c, 1), -1;
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
  char *to = room ? c->line + c->size : (char *)copy;
  ssize_t size = recv(c->fd, to, room ? room : COPY, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) { dismiss(c, NULL); return; }
  if (room == 0) return; /* the rest of a line too long; unread, it hid the answer */
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

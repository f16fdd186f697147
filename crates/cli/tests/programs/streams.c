// What the tests of standard streams need of a program.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <unistd.h>

static char bytes[64 * 1024];

static void put(const char *from, size_t count) {
  while (count > 0) {
    ssize_t done = write(1, from, count);
    if (done <= 0)
      exit(90);
    from += done;
    count -= done;
  }
}

// Standard input to standard output; how many bytes it was.
static long copy(void) {
  long all = 0;
  ssize_t count;
  while ((count = read(0, bytes, sizeof bytes)) > 0) {
    put(bytes, count);
    all += count;
  }
  if (count < 0)
    exit(91);
  return all;
}

// The same, never waiting in read, by poll, select or epoll.
static long copy_by(const char *how) {
  fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
  int queue = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  if (!strcmp(how, "epoll") && epoll_ctl(queue, EPOLL_CTL_ADD, 0, &event))
    exit(92);
  long all = 0;
  for (;;) {
    ssize_t count = read(0, bytes, sizeof bytes);
    if (count == 0)
      return all;
    if (count > 0) {
      put(bytes, count);
      all += count;
      continue;
    }
    if (errno != EAGAIN)
      exit(93);
    if (!strcmp(how, "epoll")) {
      epoll_wait(queue, &event, 1, -1);
    } else if (!strcmp(how, "select")) {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(0, &set);
      select(1, &set, 0, 0, 0);
    } else {
      struct pollfd one = {.fd = 0, .events = POLLIN};
      poll(&one, 1, -1);
    }
  }
}

static void facts(void) {
  for (int fd = 0; fd < 3; fd++) {
    struct stat status;
    fstat(fd, &status);
    int access = fcntl(fd, F_GETFL) & O_ACCMODE;
    off_t place = lseek(fd, 0, SEEK_CUR);
    dprintf(1, "%d: terminal %d, pipe %d, access %d, seek %d\n", fd, isatty(fd),
            S_ISFIFO(status.st_mode), access, place < 0 ? errno : 0);
  }
  int waiting = -1;
  struct pollfd one = {.fd = 0, .events = POLLIN};
  poll(&one, 1, -1);
  ioctl(0, FIONREAD, &waiting);
  dprintf(1, "waiting %d\n", waiting);
  long count = read(0, bytes, 1);
  dprintf(1, "read %ld, then %ld\n", count, (long)read(0, bytes, sizeof bytes));
  dprintf(1, "end %ld, %ld\n", (long)read(0, bytes, 1), (long)read(0, bytes, 1));
  poll(&one, 1, -1);
  dprintf(1, "events %x\n", one.revents);
  int again = open("/dev/stdout", O_WRONLY), error = open("/dev/stderr", O_WRONLY);
  dprintf(again, "by /dev/stdout\n");
  dprintf(error, "by /dev/stderr\n");
  dprintf(1, "write to input %d\n", write(0, "x", 1) < 0 ? errno : 0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "copy";
  if (!strcmp(what, "copy")) {
    copy();
    return 0;
  }
  if (!strcmp(what, "count")) {
    // Standard output has the bytes alone.
    dprintf(2, "copied %ld\n", copy());
    return 0;
  }
  if (!strcmp(what, "poll") || !strcmp(what, "select") || !strcmp(what, "epoll")) {
    dprintf(2, "copied %ld\n", copy_by(what));
    return 0;
  }
  if (!strcmp(what, "head")) {
    // Some input, and the end before the input's.
    ssize_t count = read(0, bytes, 2);
    put(bytes, count);
    return 5;
  }
  if (!strcmp(what, "write")) {
    // COUNT times SIZE bytes, in calls of that size; with one word more, then input.
    long count = atol(argv[2]);
    size_t size = atol(argv[3]);
    for (size_t at = 0; at < size; at++)
      bytes[at] = 'a' + at % 26;
    while (count-- > 0)
      put(bytes, size);
    if (argc > 4)
      copy();
    return 3;
  }
  facts();
  return 0;
}

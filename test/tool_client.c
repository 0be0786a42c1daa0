// Stands for a command that a copy of the server of tool_server.py runs, and ends as that copy ends.
//
// It gets the server's socket and then the command; its environment, directory, stdin, stdout and stderr go along.
// Python would take 20 ms to begin, for each of 700 commands.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

enum { FILES = 3 };

static void put(FILE *request, const char *text) { fwrite(text, 1, strlen(text) + 1, request); }

// Sends the number of bytes that follow, with the files.
static int send_size(int server, int size) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(FILES * sizeof(int))];
  } files = {.header = {CMSG_LEN(FILES * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  memcpy(CMSG_DATA(&files.header), (int[FILES]){STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}, FILES * sizeof(int));
  struct iovec data = {&size, sizeof size};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = files.bytes, .msg_controllen = sizeof files.bytes};
  return sendmsg(server, &message, 0) == sizeof size;
}

int main(int count, char **arguments) {
  struct sockaddr_un place = {.sun_family = AF_UNIX};
  strncpy(place.sun_path, arguments[1], sizeof place.sun_path - 1);
  int server = socket(AF_UNIX, SOCK_STREAM, 0), code;
  char *text, *directory = getcwd(NULL, 0);
  size_t size;
  FILE *request = open_memstream(&text, &size);
  fprintf(request, "%d", count - 2);
  put(request, "");
  for (char **each = arguments + 2; *each; each++)
    put(request, *each);
  put(request, directory);
  for (char **each = environ; *each; each++)
    put(request, *each);
  fclose(request);

  int done = connect(server, (struct sockaddr *)&place, sizeof place) == 0 && send_size(server, (int)size) &&
             send(server, text, size, 0) == (ssize_t)size && recv(server, &code, sizeof code, MSG_WAITALL) == sizeof code;
  if (!done) {
    fprintf(stderr, "%s: the server of the tools is gone\n", arguments[2]);
    return EXIT_FAILURE;
  }
  if (code < 0)
    kill(getpid(), -code);
  return code;
}

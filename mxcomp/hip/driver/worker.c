// The simulator's process: started once per host process, spoken to over a socket, one request at a time.
//
// Device memory and the marks of what has been written are files in memory (memfd) that both processes map; data never
// goes over the socket. The worker ends when the socket closes, so nothing survives this process.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

extern char** environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { NEVER, RUNNING, ENDED } state = NEVER;
static _Atomic unsigned generation;
static pthread_mutex_t closing = PTHREAD_MUTEX_INITIALIZER;  // for changes of `connection`, which need no long wait
static int connection = -1, data_file = -1, marks_file = -1;
static _Atomic bool interrupted;
static pid_t worker;
static uint8_t* marks;

unsigned mx_generation(void) { return generation; }
uint8_t* mx_marks(void) { return marks; }

int mx_device_count(void) {
  static _Atomic int count;  // the first answer holds
  const char* text = getenv("MXCOMP_SIM_DEVICES");
  int asked = text ? atoi(text) : 1;
  if (!count) count = asked < 1 ? 1 : asked > MX_MOST_DEVICES ? MX_MOST_DEVICES : asked;
  return count;
}

hipError_t mx_lost(const char* what) {
  return mx_fail(hipErrorDeinitialized, "%s belonged to a simulator worker that died; make a new device", what);
}

static void close_file(int* file) {
  if (*file >= 0) close(*file);
  *file = -1;
}

static void hang_up(void) {
  if (connection >= 0) shutdown(connection, SHUT_RDWR);  // wakes a thread that waits for a reply
}

// Reaps the worker, which ends when its socket closes; after a second without being asked.
static void reap(void) {
  pthread_mutex_lock(&closing);
  hang_up();
  close_file(&connection);
  pthread_mutex_unlock(&closing);
  for (int i = 0; worker > 0 && i < 100; ++i) {
    if (waitpid(worker, NULL, WNOHANG) != 0) return;  // gone, or someone else's wait() got it
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  if (worker <= 0) return;
  kill(worker, SIGKILL);
  waitpid(worker, NULL, 0);
}

static bool transfer(void* data, uint64_t bytes, bool sending) {
  for (uint8_t* at = data; bytes;) {
    size_t part = bytes < 1u << 30 ? bytes : 1u << 30;
    ssize_t moved = sending ? send(connection, at, part, MSG_NOSIGNAL) : recv(connection, at, part, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    at += moved, bytes -= moved;
  }
  return true;
}

static bool discard(uint64_t bytes) {
  for (char rest[256]; bytes;) {
    uint64_t part = bytes < sizeof rest ? bytes : sizeof rest;
    if (!transfer(rest, part, false)) return false;
    bytes -= part;
  }
  return true;
}

static hipError_t lose_worker(uint32_t operation) {
  state = ENDED;
  ++generation;
  reap();
  hipError_t code = operation == MX_LAUNCH ? hipErrorLaunchFailure : hipErrorDeinitialized;
  if (interrupted) return mx_fail(code, "the simulation was interrupted; make a new device");
  return mx_fail(code, "the simulator worker (process %d) died; its own output says why", (int)worker);
}

static hipError_t call_locked(uint32_t operation, int device, uint64_t a, uint64_t b, const void* payload,
                              uint64_t bytes, uint64_t* value, void* result, uint64_t result_bytes) {
  if (state != RUNNING) return mx_fail(hipErrorDeinitialized, "the simulator worker died; make a new device");
  Request request = {operation, device, a, b, bytes};
  Reply reply;
  if (!transfer(&request, sizeof request, true) || !transfer((void*)payload, bytes, true) ||
      !transfer(&reply, sizeof reply, false))
    return lose_worker(operation);
  char message[8000];
  bool good = reply.code == hipSuccess;
  uint64_t room = good ? result_bytes : sizeof message - 1, kept = reply.bytes < room ? reply.bytes : room;
  if (!transfer(good ? result : message, kept, false) || !discard(reply.bytes - kept)) return lose_worker(operation);
  if (good && kept < result_bytes) memset((uint8_t*)result + kept, 0, result_bytes - kept);
  if (value) *value = reply.value;
  if (good) return hipSuccess;
  message[kept] = 0;
  return mx_fail(reply.code, "%s", message);
}

// Ends what is being simulated for any thread of this process: calls that wait fail, devices are lost. For threads
// other than those.
HIP_API void mxcomp_interrupt(void) {
  pthread_mutex_lock(&closing);
  if (connection >= 0) interrupted = true;
  hang_up();
  pthread_mutex_unlock(&closing);
}

// ---- starting it ----

static hipError_t map_memory(void) {
  if (marks) return hipSuccess;
  close_file(&data_file), close_file(&marks_file);  // of an attempt that failed
  uint64_t bytes = MX_REGION * mx_device_count();
  data_file = memfd_create("mxcomp-device-memory", MFD_CLOEXEC);
  marks_file = memfd_create("mxcomp-written-marks", MFD_CLOEXEC);
  if (data_file < 0 || marks_file < 0 || ftruncate(data_file, bytes) || ftruncate(marks_file, bytes))
    return mx_fail(hipErrorNotInitialized, "no file in memory for device memory: %s", strerror(errno));
  int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_NORESERVE;
  void* data = mmap((void*)MX_BASE, bytes, protection, flags | MAP_FIXED_NOREPLACE, data_file, 0);
  void* found = mmap(NULL, bytes, protection, flags, marks_file, 0);
  if (data != (void*)MX_BASE || found == MAP_FAILED) {
    hipError_t error =
        mx_fail(hipErrorNotInitialized, "cannot map device memory at %#llx: %s", MX_BASE, strerror(errno));
    if (data != MAP_FAILED) munmap(data, bytes);
    if (found != MAP_FAILED) munmap(found, bytes);
    return error;
  }
  madvise(data, bytes, MADV_DONTFORK);
  madvise(found, bytes, MADV_DONTFORK);
  marks = found;
  return hipSuccess;
}

static hipError_t spawn(void) {
  char python[PATH_MAX];
  char* arguments[] = {python, "-P", "-m", "mxcomp.hip.worker", NULL};
  mx_find_python(python);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
    return mx_fail(hipErrorNotInitialized, "no socket for the simulator worker: %s", strerror(errno));
  // Copies above the numbers they get in the worker, 3, 4 and 5.
  int files[3] = {fcntl(ends[1], F_DUPFD_CLOEXEC, 10), fcntl(data_file, F_DUPFD_CLOEXEC, 10),
                  fcntl(marks_file, F_DUPFD_CLOEXEC, 10)};
  int failed = files[0] < 0 || files[1] < 0 || files[2] < 0 ? EMFILE : 0;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  for (int i = 0; i < 3; ++i) posix_spawn_file_actions_adddup2(&actions, files[i], 3 + i);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  sigset_t interrupts;  // those of a terminal are the host program's
  sigemptyset(&interrupts), sigaddset(&interrupts, SIGINT);
  posix_spawnattr_setsigmask(&attributes, &interrupts);
  if (!failed) failed = posix_spawnp(&worker, python, &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  for (int i = 0; i < 3; ++i) close_file(&files[i]);
  close_file(&ends[1]);
  if (failed) {
    close_file(&ends[0]);
    worker = 0;
    return mx_fail(hipErrorNotInitialized, "cannot run %s: %s; set MXCOMP_PYTHON to a Python that has mxcomp", python,
                   strerror(failed));
  }
  pthread_mutex_lock(&closing);
  connection = ends[0], interrupted = false;
  pthread_mutex_unlock(&closing);
  return hipSuccess;
}

// All of the environment that is about the simulator, and how memory is laid out.
static hipError_t send_settings(void) {
  char text[16384];
  int used = snprintf(text, sizeof text, "devices=%d\nregion=%llu\n", mx_device_count(), MX_REGION);
  for (int i = 0; i < mx_device_count(); ++i)
    used += snprintf(text + used, sizeof text - used, "first.%d=%llu\n", i, (unsigned long long)mx_memory_end(i));
  for (char** variable = environ; *variable; ++variable)
    if (strncmp(*variable, "MXCOMP_SIM_", 11) == 0 && used + strlen(*variable) + 2 < sizeof text)
      used += snprintf(text + used, sizeof text - used, "%s\n", *variable);
  return call_locked(MX_SETTINGS, 0, 0, 0, text, used, NULL, NULL, 0);
}

static void after_fork_in_child(void) {
  pthread_mutex_init(&lock, NULL), pthread_mutex_init(&closing, NULL);
  mx_forget_memory();
  close_file(&connection), close_file(&data_file), close_file(&marks_file);
  if (state == RUNNING) ++generation;
  state = NEVER;
  worker = 0;
  marks = NULL;  // the mappings stayed with the parent
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

static hipError_t start_locked(bool restart) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  if (state != NEVER && !restart) return hipSuccess;
  while (true) {
    bool fresh = state != RUNNING;
    hipError_t error = fresh ? map_memory() : hipSuccess;
    if (error == hipSuccess && fresh) error = spawn();
    if (error != hipSuccess) return error;
    state = RUNNING;
    error = send_settings();
    if (state == RUNNING) return error;
    if (fresh)
      return mx_fail(hipErrorNotInitialized,
                     "the simulator worker ended at once: set MXCOMP_PYTHON to a Python that has mxcomp");
  }  // it died since it was last used
}

hipError_t mx_start(bool restart) {
  pthread_mutex_lock(&lock);
  hipError_t error = start_locked(restart);
  pthread_mutex_unlock(&lock);
  return error;
}

hipError_t mx_call(uint32_t operation, int device, uint64_t a, uint64_t b, const void* payload, uint64_t bytes,
                   uint64_t* value, void* result, uint64_t result_bytes) {
  pthread_mutex_lock(&lock);
  hipError_t error = start_locked(false);
  if (error == hipSuccess)
    error = call_locked(operation, device, a, b, payload, bytes, value, result, result_bytes);
  pthread_mutex_unlock(&lock);
  return error;
}

__attribute__((destructor)) static void finish(void) {
  if (state == RUNNING) reap();
  state = ENDED;
  if (marks) {
    munmap((void*)MX_BASE, MX_REGION * mx_device_count());
    munmap(marks, MX_REGION * mx_device_count());
  }
  close_file(&data_file), close_file(&marks_file);
}

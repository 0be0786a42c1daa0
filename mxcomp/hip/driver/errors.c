// Errors: names, texts, and the message of a thread's last failure, which IREE puts into its status.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

static __thread hipError_t last_error, explained;
static __thread char explanation[8192];

static const struct {
  hipError_t code;
  const char *name, *meaning;
} errors[] = {
#define X(name, number, meaning) {name, #name, meaning},
    HIP_ERRORS(X)
#undef X
};

hipError_t mx_fail(hipError_t code, const char* format, ...) {
  last_error = explained = code;
  int used = 0;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i)
    if (errors[i].code == code) used = snprintf(explanation, sizeof explanation, "%s: ", errors[i].meaning);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(explanation + used, sizeof explanation - used, format, arguments);
  va_end(arguments);
  return code;
}

struct Failure {
  hipError_t code;
  _Atomic bool told, reported;
  char text[sizeof explanation];
};
static Failure* _Atomic latest;

Failure* mx_keep_failure(void) {
  Failure* new = calloc(1, sizeof *new);
  if (!new) return NULL;
  new->code = explained;
  memcpy(new->text, explanation, sizeof explanation);
  return latest = new;
}

hipError_t mx_tell(Failure* failure) {
  failure->told = true;
  memcpy(explanation, failure->text, sizeof explanation);
  return last_error = explained = failure->code;
}

Failure* mx_untold(void) {
  Failure* failure = latest;
  return failure && !failure->told ? failure : NULL;
}

// The host program has shown the last failure's text: IREE's tools drop it, and show a code.
HIP_API void mxcomp_reported(void) {
  if (latest) latest->reported = true;
}

__attribute__((destructor)) static void report(void) {
  if (!latest || latest->reported) return;
  fprintf(stderr, "mxcomp simulator: %s\n", latest->text);
  if (latest->told) return;
  fflush(NULL);
  _exit(1);  // nothing else says that the program's work was not done
}

HIP_API hipError_t hipGetLastError(void) {
  hipError_t result = last_error;
  last_error = hipSuccess;
  return result;
}

HIP_API const char* hipGetErrorName(hipError_t code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i)
    if (errors[i].code == code) return errors[i].name;
  return "hipErrorUnknown";
}

HIP_API const char* hipGetErrorString(hipError_t code) {
  if (code != hipSuccess && code == explained) return explanation;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i)
    if (errors[i].code == code) return errors[i].meaning;
  return "unknown error";
}

#ifdef MX_SOURCES
__attribute__((used)) static const char sources[] = MX_SOURCES;  // see build.py
#endif

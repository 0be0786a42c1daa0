// Errors: names, texts, and the message of a thread's last failure, which IREE puts into its status.
#include <stdarg.h>
#include <stdio.h>

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

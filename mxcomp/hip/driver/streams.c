// Streams and events. A call returns when its work is done, so that streams are always in order and idle.
//
// Work on a stream fails later, as on GPUs: the call that puts it there succeeds, what follows on the stream is left
// out, and the first call that could show its results to the host returns the error: a copy to memory of the host's, or
// hipStreamSynchronize. IREE 3.13 waits for ever where a call fails before its allocations that are queued behind.
// Events do not tell it either: IREE forgets what these return. Work on no stream (NULL) fails at once. An allocation,
// which is on none, fails later where the thread that works off a queue makes it: on all streams that it uses next.
#include <stdlib.h>
#include <time.h>

#include "driver.h"

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

hipError_t mx_record(hipEvent_t event) {
  if (!event) return mx_fail(hipErrorInvalidHandle, "no event to record");
  event->nanoseconds = now();
  return hipSuccess;
}

static __thread Failure* pending;  // IREE waits for no event of memory that it takes for there already
void mx_put_off_allocation(void) { pending = mx_keep_failure(); }

Failure* mx_failure_of(hipStream_t stream) {
  if (stream && pending && !stream->failure) stream->failure = pending;
  return stream ? stream->failure : NULL;
}

hipError_t mx_put_off(hipStream_t stream, hipError_t error) {
  if (error == hipSuccess || !stream) return error;
  if (!stream->failure) stream->failure = mx_keep_failure();
  return stream->failure ? hipSuccess : error;
}

HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  *stream = calloc(1, sizeof **stream);
  if (!*stream) return mx_fail(hipErrorOutOfMemory, "no room for a stream");
  mx_is_asked_by_host();
  (*stream)->device = mx_current_device();
  (*stream)->generation = mx_generation();
  return hipSuccess;
}

hipError_t mx_check_stream(hipStream_t stream) {
  return !stream || stream->generation == mx_generation() ? hipSuccess : mx_lost("the stream");
}

HIP_API hipError_t hipStreamDestroy(hipStream_t stream) {
  free(stream);
  return hipSuccess;
}

HIP_API hipError_t hipStreamSynchronize(hipStream_t stream) {
  Failure* failure = mx_failure_of(stream);
  return failure ? mx_tell(failure) : hipSuccess;
}

HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  if (!event) return mx_fail(hipErrorInvalidHandle, "no event to wait for");
  if (stream && !mx_failure_of(stream)) stream->failure = event->failure;
  return hipSuccess;
}

HIP_API hipError_t hipLaunchHostFunc(hipStream_t stream, void (*function)(void*), void* data) {
  if (!function) return mx_fail(hipErrorInvalidValue, "no function to call");
  function(data);
  return hipSuccess;
}

HIP_API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  *event = calloc(1, sizeof **event);
  return *event ? hipSuccess : mx_fail(hipErrorOutOfMemory, "no room for an event");
}

HIP_API hipError_t hipEventCreate(hipEvent_t* event) { return hipEventCreateWithFlags(event, 0); }

HIP_API hipError_t hipEventDestroy(hipEvent_t event) {
  free(event);
  return hipSuccess;
}

HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  hipError_t error = mx_record(event);
  if (error == hipSuccess) event->failure = mx_failure_of(stream);
  return error;
}

HIP_API hipError_t hipEventQuery(hipEvent_t event) {
  return event ? hipSuccess : mx_fail(hipErrorInvalidHandle, "no event to ask");
}

HIP_API hipError_t hipEventSynchronize(hipEvent_t event) { return hipEventQuery(event); }

HIP_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t end) {
  if (!start || !end || !start->nanoseconds || !end->nanoseconds)
    return mx_fail(hipErrorInvalidHandle, "an event that was not recorded");
  *milliseconds = (float)((double)(int64_t)(end->nanoseconds - start->nanoseconds) * 1e-6);
  return hipSuccess;
}

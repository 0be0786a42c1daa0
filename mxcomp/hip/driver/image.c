// Reading code objects that programs point to. HIP is not told their size: the ELF headers say it, and these may be
// broken. What they speak of is read with process_vm_readv, which fails where memory ends instead of faulting.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "driver.h"

// The same by a file, for sandboxes without process_vm_readv.
static bool read_by_file(void* to, const uint8_t* from, uint64_t bytes) {
  int file = memfd_create("mxcomp-code-object", MFD_CLOEXEC);
  uint64_t done = 0;
  for (ssize_t part; file >= 0 && done < bytes; done += part) {
    part = pwrite(file, from + done, bytes - done, done);
    if (part <= 0 || pread(file, (uint8_t*)to + done, part, done) != part) break;
  }
  if (file >= 0) close(file);
  return done == bytes;
}

static bool read_memory(void* to, const uint8_t* image, uint64_t start, uint64_t bytes) {
  if (start > UINTPTR_MAX - (uintptr_t)image) return false;
  const uint8_t* from = (const uint8_t*)((uintptr_t)image + start);
  struct iovec target = {to, bytes}, source = {(void*)from, bytes};
  ssize_t got = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
  if (got < 0 && (errno == ENOSYS || errno == EPERM)) return read_by_file(to, from, bytes);
  return got >= 0 && (uint64_t)got == bytes;
}

static bool extend(uint64_t* end, uint64_t start, uint64_t bytes) {
  if (start > MX_MOST_IMAGE_BYTES || bytes > MX_MOST_IMAGE_BYTES - start) return false;
  if (start + bytes > *end) *end = start + bytes;
  return true;
}

// Extends the end of the file by what the headers of a table speak of.
static hipError_t extend_by_table(uint64_t* end, const uint8_t* image, uint64_t start, uint64_t count, bool segments) {
  uint64_t each = segments ? sizeof(Elf64_Phdr) : sizeof(Elf64_Shdr);
  const char* name = segments ? "program" : "section";
  if (!count) return hipSuccess;
  if (!extend(end, start, count * each))
    return mx_fail(hipErrorInvalidImage, "%s headers at byte %#llx", name, (unsigned long long)start);
  void* table = malloc(count * each);
  if (!table) return mx_fail(hipErrorOutOfMemory, "no room for %s headers", name);
  hipError_t error = hipSuccess;
  if (!read_memory(table, image, start, count * each))
    error = mx_fail(hipErrorInvalidImage, "no %s headers at byte %#llx", name, (unsigned long long)start);
  for (uint64_t i = 0; i < count && error == hipSuccess; ++i) {
    const Elf64_Phdr* segment = (const Elf64_Phdr*)table + i;
    const Elf64_Shdr* section = (const Elf64_Shdr*)table + i;
    if (!segments && section->sh_type == SHT_NOBITS) continue;
    uint64_t first = segments ? segment->p_offset : section->sh_offset;
    uint64_t bytes = segments ? segment->p_filesz : section->sh_size;
    if (!extend(end, first, bytes))
      error = mx_fail(hipErrorInvalidImage, "%s header %u: %#llx bytes at byte %#llx", name, (unsigned)i,
                      (unsigned long long)bytes, (unsigned long long)first);
  }
  free(table);
  return error;
}

hipError_t mx_read_image(const void* image, uint8_t** result, uint64_t* bytes) {
  Elf64_Ehdr header;
  if (!image || !read_memory(&header, image, 0, sizeof header) || memcmp(header.e_ident, "\177ELF\2\1", 6) != 0)
    return mx_fail(hipErrorInvalidImage, "not a 64-bit ELF file: expected a gfx950 code object");
  uint64_t end = sizeof header;
  if ((header.e_phnum && header.e_phentsize != sizeof(Elf64_Phdr)) ||
      (header.e_shnum && header.e_shentsize != sizeof(Elf64_Shdr)))
    return mx_fail(hipErrorInvalidImage, "program headers of %u bytes, section headers of %u", header.e_phentsize,
                   header.e_shentsize);
  hipError_t error = extend_by_table(&end, image, header.e_phoff, header.e_phnum, true);
  if (error == hipSuccess) error = extend_by_table(&end, image, header.e_shoff, header.e_shnum, false);
  if (error != hipSuccess) return error;
  if (!(*result = malloc(end))) return mx_fail(hipErrorOutOfMemory, "no room for a code object");
  *bytes = end;
  if (read_memory(*result, image, 0, end)) return hipSuccess;
  free(*result);
  return mx_fail(hipErrorInvalidImage, "it is cut short: its headers speak of %llu bytes", (unsigned long long)end);
}

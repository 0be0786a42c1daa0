// Which Python simulates: the one of MXCOMP_PYTHON, or of an environment that has mxcomp and that this process runs
// code of already. No file names it, and nothing that others may write into is looked at.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

// Cuts the last part of a path off and returns it; NULL for the root.
static const char* cut(char* path) {
  char* slash = strrchr(path, '/');
  if (!slash) return NULL;
  *slash = 0;
  return slash + 1;
}

// Whether mxcomp is installed in a folder of packages, also if its sources lie elsewhere.
static bool has_mxcomp(const char* packages) {
  DIR* folder = opendir(packages);
  bool found = false;
  for (struct dirent* entry; folder && !found && (entry = readdir(folder));)
    found = strcmp(entry->d_name, "mxcomp") == 0 || strncmp(entry->d_name, "mxcomp-", 7) == 0;
  if (folder) closedir(folder);
  return found;
}

// The interpreter bin/python3.x of the environment whose lib/python3.x/site-packages a file is in.
static bool find_by_file(const char* file, char* python) {
  char path[PATH_MAX];
  if (!realpath(file, path)) return false;
  for (const char* name; (name = cut(path));) {
    const char* folder = strrchr(path, '/');
    if (!folder || (strcmp(folder, "/site-packages") != 0 && strcmp(folder, "/dist-packages") != 0)) continue;
    if (!has_mxcomp(path)) continue;
    cut(path);
    const char* version = cut(path);
    if (!version || !cut(path)) return false;
    if (snprintf(python, PATH_MAX, "%s/bin/%s", path, version) < PATH_MAX && access(python, X_OK) == 0) return true;
    return snprintf(python, PATH_MAX, "%s/bin/python3", path) < PATH_MAX && access(python, X_OK) == 0;
  }
  return false;
}

static int find_by_object(struct dl_phdr_info* object, size_t bytes, void* python) {
  return object->dlpi_name && *object->dlpi_name && find_by_file(object->dlpi_name, python);
}

void mx_find_python(char* python) {
  const char* given = getenv("MXCOMP_PYTHON");
  Dl_info self;
  if (given && *given) {
    snprintf(python, PATH_MAX, "%s", given);
    return;
  }
  if (dladdr((void*)&mx_find_python, &self) && self.dli_fname && find_by_file(self.dli_fname, python)) return;
  if (find_by_file("/proc/self/exe", python) || dl_iterate_phdr(find_by_object, python)) return;
  snprintf(python, PATH_MAX, "python3");
}

#include "loader.h"

#include <dlfcn.h>

void *loader_open(const struct loader_library *library) { return dlopen(library->soname, RTLD_LAZY | RTLD_LOCAL); }

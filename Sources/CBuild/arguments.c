#include "shim.h"

static int count;
static char **arguments = &(char *){0};

// The dynamic loader of glibc passes the arguments of main to each constructor.
__attribute__((constructor)) static void keep(int argument_count, char **argument_vector) {
    count = argument_count;
    arguments = argument_vector;
}

int build_argument_count(void) { return count; }
char **build_arguments(void) { return arguments; }

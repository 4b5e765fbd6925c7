#ifndef EARSHOT_CLIBCARES_SHIM_H
#define EARSHOT_CLIBCARES_SHIM_H

#include <arpa/inet.h>
#include <ares.h>
#include <netdb.h>
#include <sys/time.h>

#endif

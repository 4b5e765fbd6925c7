#ifndef EARSHOT_CLIBZSTD_SHIM_H
#define EARSHOT_CLIBZSTD_SHIM_H

#include <zstd.h>
#include <zstd_errors.h>

#endif

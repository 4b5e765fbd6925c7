#ifndef EARSHOT_CLIBBROTLI_SHIM_H
#define EARSHOT_CLIBBROTLI_SHIM_H

#include <brotli/decode.h>

#endif

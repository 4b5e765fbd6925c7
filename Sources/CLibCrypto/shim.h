#ifndef EARSHOT_CLIBCRYPTO_SHIM_H
#define EARSHOT_CLIBCRYPTO_SHIM_H

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#endif

#ifndef EARSHOT_CLIBSQLITE_SHIM_H
#define EARSHOT_CLIBSQLITE_SHIM_H

#include <sqlite3.h>

/// `SQLITE_TRANSIENT`, a macro that Swift cannot import: SQLite copies the value.
static inline sqlite3_destructor_type sqlite_transient(void) { return SQLITE_TRANSIENT; }

#endif

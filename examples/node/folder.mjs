// The runtime directory of the bus, and the rule by which it is trusted.

import { lstat } from 'node:fs/promises'
import net from 'node:net'
import { dirname, isAbsolute, join } from 'node:path'

/** Runtime directory of a bus for several users of the machine. */
const SHARED = '/run/earshot'

/** Returns the runtime directory of the bus. */
export async function findFolder() {
  const { EARSHOT_RUNTIME: named, XDG_RUNTIME_DIR: session } = process.env
  if (named) return named
  if (session) return join(session, 'earshot')
  const own = join('/tmp', `earshot-${process.geteuid()}`)
  if (await isServed(own)) return own
  const user = `/run/user/${process.geteuid()}`
  if (await isOwn(user) && await isServed(join(user, 'earshot'))) return join(user, 'earshot')
  const isShared = await isTrusted(SHARED).catch(() => false)
  return isShared ? SHARED : own
}

/** Returns whether a directory is this user's, and no other user can change it. */
async function isOwn(folder) {
  const found = await lstat(folder).catch(() => null)
  return found !== null && found.isDirectory() && found.uid === process.geteuid() && (found.mode & 0o022) === 0
}

function isServed(folder) {
  return new Promise(resolve => {
    const probe = net.connect(join(folder, 'bus'))
    probe.once('connect', () => resolve(true) || probe.destroy())
    probe.once('error', () => resolve(false))
  })
}

/**
 * Returns whether the listener in a directory is trusted: of a directory of this user, or of one whose owner root decided. In /tmp
 * any user can create a directory, and would receive the requests. Fails if it is missing.
 */
export async function isTrusted(folder) {
  const found = await lstat(folder)
  if (!found.isDirectory()) return false
  if (found.uid === process.geteuid()) return (found.mode & 0o077) === 0 || (found.mode & 0o7777) === 0o755
  return (found.mode & 0o022) === 0 && onlyRootDecides(folder, found.uid === 0)
}

/** Returns whether only root, or this user, can create and replace the directory. A path with links is not accepted. */
async function onlyRootDecides(folder, permitsSticky) {
  if (!isAbsolute(folder)) return false
  while (folder !== '/') {
    folder = dirname(folder)
    const found = await lstat(folder)
    const isSafe = (found.mode & 0o022) === 0 || (permitsSticky && (found.mode & 0o1000) !== 0)
    if (!found.isDirectory() || !isSafe || ![0, process.geteuid()].includes(found.uid)) return false
  }
  return true
}

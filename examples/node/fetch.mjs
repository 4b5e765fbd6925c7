// fetch.mjs [--pull] URL: Writes the body of a URL to standard output. With --pull it comes over the connection, and a broken
// connection is resumed.

import { randomUUID } from 'node:crypto'
import { pipeline } from 'node:stream/promises'
import { Bus, EarshotError, run, usage } from './earshot.mjs'

const pull = process.argv[2] === '--pull'
const [url, ...more] = process.argv.slice(pull ? 3 : 2)
if (url === undefined || more.length) usage('fetch.mjs [--pull] URL')

await run(async bus => {
  // All programs of the user share the handler names, so a random part keeps this one unique.
  bus.fetch(`fetch/${randomUUID()}`, '1', url)
  for await (const message of bus) {
    if (!message.isTerminal) continue
    if (message.verb === 'RESULT') await pipeline(message.parts(), process.stdout, { end: false })
    bus.acknowledge(message)
    if (message.verb === 'RESULT') return
    const { detail, status = '' } = message.fields
    throw new EarshotError(`${url}: ${detail} (${`${message.operands[2]} ${status}`.trim()})`)
  }
}, () => Bus.connect(pull ? { pull, lease: 60 } : {}))

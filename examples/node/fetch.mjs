// fetch.mjs URL: Writes the body of a URL to standard output.

import { randomUUID } from 'node:crypto'
import { pipeline } from 'node:stream/promises'
import { EarshotError, run, usage } from './earshot.mjs'

const [url, ...more] = process.argv.slice(2)
if (url === undefined || more.length) usage('fetch.mjs URL')

await run(async bus => {
  // All programs of the user share the handler names, so a random part keeps this one unique.
  bus.fetch(`fetch/${randomUUID()}`, '1', url)
  for await (const message of bus) {
    if (!message.isTerminal) continue
    if (message.verb === 'RESULT') await pipeline([await message.content()], process.stdout, { end: false })
    bus.acknowledge(message)
    if (message.verb === 'RESULT') return
    const { detail, status = '' } = message.fields
    throw new EarshotError(`${url}: ${detail} (${`${message.operands[2]} ${status}`.trim()})`)
  }
})

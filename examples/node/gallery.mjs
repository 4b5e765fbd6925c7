// gallery.mjs HANDLER URL...: Requests all URLs, and removes the handler after half of the results.

import { run, usage } from './earshot.mjs'

const [handler, ...urls] = process.argv.slice(2)
if (!urls.length) usage('gallery.mjs HANDLER URL...')

await run(async bus => {
  urls.forEach((url, index) => bus.fetch(handler, `${index + 1}`, url))
  let received = 0
  for await (const message of bus) {
    if (message.isTerminal) {
      console.log(...message.operands, message.fields.url ?? '-')
      bus.acknowledge(message)
      if (++received === Math.ceil(urls.length / 2)) bus.remove(handler)
    } else if (message.verb === 'REMOVED') {
      return console.log('dropped', message.operands[1])
    }
  }
})

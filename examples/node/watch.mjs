// watch.mjs HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it.

import { run, usage } from './earshot.mjs'

const [pattern, count = 'Infinity', ...more] = process.argv.slice(2)
if (!pattern || !(Number(count) > 0) || more.length) usage('watch.mjs HANDLER [COUNT]')

await run(async bus => {
  bus.subscribe(pattern)
  let left = Number(count)
  for await (const message of bus) {
    if (message.verb === 'OK') console.error(`earshot: listening to ${pattern}`)
    if (!message.isTerminal) continue
    console.log(...message.operands, message.fields.url ?? '-')
    bus.acknowledge(message)
    if (--left <= 0) return
  }
})

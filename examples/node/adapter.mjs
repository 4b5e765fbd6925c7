// adapter.mjs FOLDER [lease=SECONDS]: Executes the commands on standard input, for the tests common to all languages
// (protocols/README.md). Writes bodies to files in FOLDER.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Bus, usage } from './earshot.mjs'

const NO_BROKER = 69
const [folder, lease = 'lease=0'] = process.argv.slice(2)
if (!folder) usage('adapter.mjs FOLDER [lease=SECONDS]')

/** Returns the line for a message, or undefined for a message without one. */
async function line(bus, message) {
  const { verb, fields, operands } = message, words = operands.join(' ')
  if (message.isTerminal) {
    const path = join(folder, fields.seq)
    await writeFile(path, await message.content())
    bus.acknowledge(message)
    return verb === 'RESULT' ? `result ${words} ${path}` : `failed ${words} ${fields.status ?? '-'} ${path}`
  }
  if (verb === 'REMOVED' && operands.length === 3) return `cancelled ${operands[0]} ${operands[1]}`
  if (['PROGRESS', 'REMOVED'].includes(verb)) return `${verb.toLowerCase()} ${words}`
  if (verb === 'OK') return 'listening'
}

try {
  const bus = await Bus.connect({ lease: Number(lease.slice('lease='.length)) })
  console.log('ready')
  for await (const command of createInterface({ input: process.stdin })) {
    const [verb, ...words] = command.split(' ')
    if (verb === 'fetch') {
      bus.fetch(...words.slice(0, 3), Object.fromEntries(words.slice(3).map(field => field.split(/=(.*)/, 2))))
    } else if (verb === 'receive') {
      let printed
      while (!printed) printed = await line(bus, await bus.receive())
      console.log(printed)
    } else {
      bus[verb](...words)
    }
  }
  bus.close()
} catch (error) {
  console.log(error.status === NO_BROKER ? 'gone' : `error ${error.message}`)
  process.exit()
}

// A client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md).

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Dealer } from './zmtp.mjs'

const FAILED = 1, NO_BROKER = 69

/** Why it cannot go on; `status` is the exit status that fits, as those of the command `earshot`. */
export class EarshotError extends Error {
  constructor(message, status = FAILED) {
    super(message)
    this.status = status
  }
}

/** A message of the broker: its first line in words, its fields, the HTTP fields one a line, its body if it has one. */
class Message {
  constructor([head, body]) {
    const [top, ...http] = head.toString().split('\n\n')
    const [line, ...fields] = top.trimEnd().split('\n')
    ;[this.verb, ...this.operands] = line.split(' ')
    this.fields = Object.fromEntries(fields.map(field => field.match(/^([^:]*):? *(.*)$/).slice(1)))
    this.http = http.join('\n\n')
    this.body = body ?? Buffer.alloc(0)
  }

  /** Whether it is the last one of a request. */
  get isTerminal() {
    return this.verb === 'RESULT' || this.verb === 'FAILED'
  }

  /** The body. To be awaited before the acknowledgement: then the file that it may be in is gone. */
  async content() {
    return this.fields.file ? readFile(this.fields.file) : this.body
  }
}

/** A connection. What it asked for ends with it. */
export class Bus {
  #dealer
  #messages
  #heard = 0

  /** Connects and is greeted. */
  static async connect() {
    const { EARSHOT_RUNTIME: named, XDG_RUNTIME_DIR: session } = process.env
    const folder = named || (session ? join(session, 'earshot') : join('/tmp', `earshot-${process.geteuid()}`))
    const bus = new Bus()
    try {
      bus.#dealer = await Dealer.connect(join(folder, 'bus'))
    } catch (error) {
      throw new EarshotError(
        `no broker answers in ${folder} (${error.code ?? error.message}): start one with \`earshot serve\``, NO_BROKER)
    }
    bus.#messages = bus.#dealer.messages()
    bus.#say(['HELLO', 'EAR/1'])
    await bus.receive()
    return bus
  }

  /** Wants a URL. Fields are those of FETCH: `{ priority: 'high', timeout: 5 }`. */
  fetch(handler, request, url, fields = {}) {
    this.#say(['FETCH', handler, request, url], fields)
  }

  /** Nothing under the handler is wanted any more. Answered with REMOVED and how many requests had not ended. */
  remove(handler) {
    this.#say(['REMOVE', handler])
  }

  /** One request is not wanted any more. Answered with CANCELLED. */
  cancel(handler, request) {
    this.#say(['CANCEL', handler, request])
  }

  /** Hears what becomes of a handler's requests, or with a slash at its end of all below. Answered with ANSWER. */
  subscribe(pattern) {
    this.#say(['SUBSCRIBE', pattern])
    this.#say(['QUERY', 'ping']) // SUBSCRIBE itself is not answered
  }

  /** Unacknowledged terminals are in the way of the next. */
  acknowledge(message) {
    this.#say(['ACK', message.fields.seq])
  }

  /** The next message, a terminal once: a broker may say it again, with the number that it had. */
  async receive() {
    for (;;) {
      const message = await this.#receive()
      if (!message.isTerminal) return message
      if (Number(message.fields.seq) <= this.#heard) continue
      this.#heard = Number(message.fields.seq)
      return message
    }
  }

  async #receive() {
    let next
    try {
      next = await this.#messages.next()
    } catch (error) {
      throw new EarshotError(`the connection to the broker broke: ${error.message}`, NO_BROKER)
    }
    if (next.done) throw new EarshotError('the broker is gone: start one with `earshot serve`', NO_BROKER)
    const message = new Message(next.value)
    if (message.verb !== 'ERROR') return message
    const code = message.operands[0]
    if (code === 'hello-required')
      throw new EarshotError('the broker has ended and another one is there: ask again', NO_BROKER)
    throw new EarshotError(`${code}: ${message.fields.detail}`)
  }

  /** All messages from now on. */
  async *[Symbol.asyncIterator]() {
    for (;;) yield await this.receive()
  }

  close() {
    this.#dealer.close()
  }

  #say(words, fields = {}) {
    // One with a line end in it could say anything.
    if (!words.every(word => /^[^\x00-\x20\x7f]+$/.test(word)))
      throw new EarshotError('a URL or name is empty, or has a space or control character in it', 64)
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\n`)
    this.#dealer.send(words.join(' ') + '\n' + lines.join(''))
  }
}

/** Runs a program's body with a bus; a failure is told on standard error and by the exit status. */
export async function run(program) {
  process.stdout.on('error', giveUp)
  try {
    const bus = await Bus.connect()
    await program(bus)
    bus.close()
  } catch (error) {
    giveUp(error)
  }
}

function giveUp(error) {
  console.error(`earshot: ${error.message}`)
  process.exit(error.status ?? FAILED)
}

/** Ends a program that was called wrongly. */
export function usage(text) {
  console.error(`usage: ${text}`)
  process.exit(64)
}

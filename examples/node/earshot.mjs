// A client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md).

import { lstat, readFile } from 'node:fs/promises'
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

/** Whether it is a folder of this user's alone: in /tmp anybody can make one, and would hear what is asked for. */
function isOwn(found) {
  return found.isDirectory() && found.uid === process.geteuid() && (found.mode & 0o077) === 0
}

/** What connections of both kinds have. */
class Connection {
  #dealer
  #messages
  #heard = 0

  /** Connects to the endpoint, greets, and hears the answer. */
  async _greet(endpoint, words, fields) {
    const { EARSHOT_RUNTIME: named, XDG_RUNTIME_DIR: session } = process.env
    const folder = named || (session ? join(session, 'earshot') : join('/tmp', `earshot-${process.geteuid()}`))
    try {
      if (isOwn(await lstat(folder))) this.#dealer = await Dealer.connect(join(folder, endpoint))
    } catch (error) {
      throw new EarshotError(
        `no broker answers in ${folder} (${error.code ?? error.message}): start one with \`earshot serve\``, NO_BROKER)
    }
    if (!this.#dealer)
      throw new EarshotError(
        `${folder} is not a folder of this user's alone: what runs there is not to be trusted`, NO_BROKER)
    this.#messages = this.#dealer.messages()
    this._say(words, fields)
    await this.receive()
  }

  /** The next message, a terminal once: a broker may say it again, with the number that it had. */
  async receive() {
    for (;;) {
      const message = await this.#receive()
      // The refusal of a durable request has no number, and needs no acknowledgement.
      if (!message.isTerminal || message.fields.seq === undefined) return message
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

  _say(words, fields = {}, http = '', ...bodies) {
    // One with a line end in it could say anything.
    if (!words.every(word => /^[^\x00-\x20\x7f]+$/.test(word)))
      throw new EarshotError('a URL or name is empty, or has a space or control character in it', 64)
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\n`)
    this.#dealer.send(words.join(' ') + '\n' + lines.join('') + (http && `\n${http}`), ...bodies)
  }
}

/** A connection of a client. What it asked for ends with it. */
export class Bus extends Connection {
  /** Connects and is greeted. */
  static async connect() {
    const bus = new Bus()
    await bus._greet('bus', ['HELLO', 'EAR/1'])
    return bus
  }

  /** Wants a URL. Fields are those of FETCH: `{ priority: 'high', timeout: 5 }`. */
  fetch(handler, request, url, fields = {}) {
    this._say(['FETCH', handler, request, url], fields)
  }

  /** Nothing under the handler is wanted any more. Answered with REMOVED and how many requests had not ended. */
  remove(handler) {
    this._say(['REMOVE', handler])
  }

  /** One request is not wanted any more. Answered with CANCELLED. */
  cancel(handler, request) {
    this._say(['CANCEL', handler, request])
  }

  /** Hears what becomes of a handler's requests, or with a slash at its end of all below. Answered with ANSWER. */
  subscribe(pattern) {
    this._say(['SUBSCRIBE', pattern])
    this._say(['QUERY', 'ping']) // SUBSCRIBE itself is not answered
  }

  /** Unacknowledged terminals are in the way of the next. */
  acknowledge(message) {
    if (message.fields.seq !== undefined) this._say(['ACK', message.fields.seq])
  }
}

/** A connection as a worker, protocol EARW/1 (protocols/2-WORKER.md). */
export class Worker extends Connection {
  /** Connects as a worker for URLs of a scheme, so many at once. */
  static async connect(scheme, slots) {
    const worker = new Worker()
    await worker._greet('work', ['READY', 'EARW/1'], { slots, schemes: scheme, pid: process.pid, drain: 'yes' })
    return worker
  }

  /** Answers a JOB with a text. */
  done(attempt, type, text) {
    this._say(['DONE', attempt, '200'], { length: Buffer.byteLength(text) }, `content-type: ${type}\n`, text)
  }

  /** Answers a JOB that came to nothing; `detail` is a line for who asked, if the code is worker-failed. */
  failed(attempt, code, detail) {
    this._say(['FAILED', attempt, code], { detail })
  }

  /** Answers PING. */
  pong() {
    this._say(['PONG'])
  }

  /** Leaves. */
  bye() {
    this._say(['BYE'])
  }
}

/** Runs a program's body with a bus; a failure is told on standard error and by the exit status. */
export async function run(program, connect = Bus.connect) {
  process.stdout.on('error', giveUp)
  try {
    const bus = await connect()
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

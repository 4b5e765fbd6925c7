// Client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md).

import { lstat, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Dealer } from './zmtp.mjs'

const FAILED = 1, NO_BROKER = 69

/** Error of the client. `status` is the exit code for it, the same as that of the command `earshot`. */
export class EarshotError extends Error {
  constructor(message, status = FAILED) {
    super(message)
    this.status = status
  }
}

/** Message from the broker: the words of its first line, its fields, the HTTP fields as lines, and its body. */
class Message {
  constructor([head, body]) {
    const [top, ...http] = head.toString().split('\n\n')
    const [line, ...fields] = top.trimEnd().split('\n')
    ;[this.verb, ...this.operands] = line.split(' ')
    this.fields = Object.fromEntries(fields.map(field => field.match(/^([^:]*):? *(.*)$/).slice(1)))
    this.http = http.join('\n\n')
    this.body = body ?? Buffer.alloc(0)
  }

  /** Whether the message is a terminal, RESULT or FAILED. */
  get isTerminal() {
    return this.verb === 'RESULT' || this.verb === 'FAILED'
  }

  /** Returns the body. Await it before `acknowledge`, which lets the broker delete the body. */
  async content() {
    return this.fields.file ? readFile(this.fields.file) : this.body
  }
}

/** Whether a directory is private to this user. In /tmp any user can create one, and would receive the requests. */
function isOwn(found) {
  return found.isDirectory() && found.uid === process.geteuid() && (found.mode & 0o077) === 0
}

/** Connection of a client or a worker. */
class Connection {
  #dealer
  #messages
  #heard = 0

  /** Connects to the endpoint, sends the first message, and waits for the answer. */
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
        `${folder} is not a directory private to this user: remove it, or set EARSHOT_RUNTIME`, NO_BROKER)
    this.#messages = this.#dealer.messages()
    this._say(words, fields)
    await this.receive()
  }

  /** Waits for the next message. Skips terminals that the broker redelivers with the same number. */
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

  /** Yields all further messages. */
  async *[Symbol.asyncIterator]() {
    for (;;) yield await this.receive()
  }

  close() {
    this.#dealer.close()
  }

  _say(words, fields = {}, http = '', ...bodies) {
    // A line feed in a word would inject fields into the message.
    if (!words.every(word => /^[^\x00-\x20\x7f]+$/.test(word)))
      throw new EarshotError('a URL or name is empty, or has a space or control character in it', 64)
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\n`)
    this.#dealer.send(words.join(' ') + '\n' + lines.join('') + (http && `\n${http}`), ...bodies)
  }
}

/** Connection of a client. Closing it removes its requests. */
export class Bus extends Connection {
  /** Connects and performs the handshake. */
  static async connect() {
    const bus = new Bus()
    await bus._greet('bus', ['HELLO', 'EAR/1'])
    return bus
  }

  /** Requests a URL. The fields are those of FETCH: `{ priority: 'high', timeout: 5 }`. */
  fetch(handler, request, url, fields = {}) {
    this._say(['FETCH', handler, request, url], fields)
  }

  /** Removes a handler with all its requests. The answer is REMOVED with the number of pending requests. */
  remove(handler) {
    this._say(['REMOVE', handler])
  }

  /** Cancels one request. The answer is CANCELLED. */
  cancel(handler, request) {
    this._say(['CANCEL', handler, request])
  }

  /** Subscribes to a handler, or with a trailing slash to all handlers below it. The answer is ANSWER. */
  subscribe(pattern) {
    this._say(['SUBSCRIBE', pattern])
    this._say(['QUERY', 'ping']) // SUBSCRIBE has no answer
  }

  /** Acknowledges a terminal. Unacknowledged terminals fill the delivery window. */
  acknowledge(message) {
    if (message.fields.seq !== undefined) this._say(['ACK', message.fields.seq])
  }
}

/** Connection of a worker, protocol EARW/1 (protocols/2-WORKER.md). */
export class Worker extends Connection {
  /** Connects as a worker for URLs of a scheme, with `slots` concurrent jobs. */
  static async connect(scheme, slots) {
    const worker = new Worker()
    await worker._greet('work', ['READY', 'EARW/1'], { slots, schemes: scheme, pid: process.pid, drain: 'yes' })
    return worker
  }

  /** Completes a JOB with a text as its response. */
  done(attempt, type, text) {
    this._say(['DONE', attempt, '200'], { length: Buffer.byteLength(text) }, `content-type: ${type}\n`, text)
  }

  /** Fails a JOB. With the code worker-failed, clients receive `detail`, which is one line. */
  failed(attempt, code, detail) {
    this._say(['FAILED', attempt, code], { detail })
  }

  /** Answers a PING of the broker. */
  pong() {
    this._say(['PONG'])
  }

  /** Ends the worker's session. */
  bye() {
    this._say(['BYE'])
  }
}

/** Runs a program with a bus. Reports a failure on standard error and as the exit code. */
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

/** Prints the usage of a program and exits. */
export function usage(text) {
  console.error(`usage: ${text}`)
  process.exit(64)
}

// Client of an Earshot bus, protocol EAR/1 (protocols/1-core.md).

import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { findFolder, isTrusted } from './folder.mjs'
import { Dealer } from './zmtp.mjs'

const FAILED = 1, NO_BROKER = 69
const PIECE_BYTES = 256 << 10, OPEN_READS = 4

/** Error of the client. `status` is the exit code for it, the same as that of the command `earshot`. */
export class EarshotError extends Error {
  constructor(message, status = FAILED) {
    super(message)
    this.status = status
  }
}

/** Message from the broker: the words of its first line, its fields, the HTTP fields as lines, and its body. */
class Message {
  #bus

  constructor(bus, [head, body]) {
    this.#bus = bus
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
    const parts = []
    for await (const part of this.parts()) parts.push(part)
    return parts.length === 1 ? parts[0] : Buffer.concat(parts)
  }

  /** Yields the parts of the body in order. Read them before `acknowledge`. */
  async *parts() {
    if (this.fields.pull) yield* this.#bus.pull(this)
    else yield this.fields.file ? readBody(this.fields.file) : this.body
  }
}

/** An ERROR that names an earlier message. */
class Refusal extends EarshotError {}

/** The broker cannot be reached now. */
class Unreachable extends EarshotError {
  constructor(message) {
    super(message, NO_BROKER)
  }
}

/** Returns the contents of a file of the broker. */
async function readBody(path) {
  try {
    return await readFile(path)
  } catch (error) {
    // A broker that ends deletes its files, and its folder.
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
    throw new Unreachable('the broker has ended: ask again')
  }
}

/** Connection of a client or a worker. */
class Connection {
  #dealer
  #messages
  #lastSeq = 0

  /** Connects to the endpoint, sends the first message, and waits for the answer. */
  async _greet(endpoint, words, fields) {
    const folder = await findFolder()
    try {
      if (await isTrusted(folder)) this.#dealer = await Dealer.connect(join(folder, endpoint))
    } catch (error) {
      throw new Unreachable(
        `no broker answers in ${folder} (${error.code ?? error.message}): start one with \`earshot serve\``)
    }
    if (!this.#dealer)
      throw new EarshotError(
        `${folder} is not a directory private to this user: remove it, or set EARSHOT_RUNTIME`, NO_BROKER)
    this.#messages = this.#dealer.messages()
    this._send(head(words, fields))
    return this._receiveAny(true)
  }

  /** Waits for the next message. Skips terminals that the broker redelivers with the same number. */
  async receive() {
    for (;;) {
      const message = await this._receiveAny()
      // The refusal of a durable request has no number, and needs no acknowledgement.
      if (!message.isTerminal || message.fields.seq === undefined) return message
      if (Number(message.fields.seq) <= this.#lastSeq) continue
      this.#lastSeq = Number(message.fields.seq)
      return message
    }
  }

  async _receiveAny(isGreeting = false) {
    let next
    try {
      next = await this.#messages.next()
    } catch (error) {
      throw new Unreachable(`the connection to the broker broke: ${error.message}`)
    }
    if (next.done) throw new Unreachable('the broker is gone: start one with `earshot serve`')
    const message = new Message(this, next.value)
    if (message.verb !== 'ERROR') return message
    // The refusal of the first message has no number, but that of an earlier message can come first.
    if (isGreeting && message.fields.to) return this._receiveAny(true)
    this._confirm(message)
    const code = message.operands[0]
    if (code === 'hello-required')
      throw new EarshotError('the broker has ended and another one is there: ask again', NO_BROKER)
    if (code === 'session-in-use') throw new Unreachable('the session is in use by another connection')
    throw new (message.fields.to ? Refusal : EarshotError)(`${code}: ${message.fields.detail}`)
  }

  /** Yields all further messages. */
  async *[Symbol.asyncIterator]() {
    for (;;) yield await this.receive()
  }

  /** Records an answer of the broker. */
  _confirm() {}

  close() {
    this.#dealer.close()
  }

  _send(...frames) {
    this.#dealer.send(...frames)
  }

  _sendMessage(words, fields = {}, http = '', ...bodies) {
    this._send(head(words, fields) + (http && `\n${http}`), ...bodies)
  }
}

/** Returns the head of a message. */
function head(words, fields) {
  // A line feed in a word would inject fields into the message.
  if (!words.every(word => /^[^\x00-\x20\x7f]+$/.test(word)))
    throw new EarshotError('a URL or name is empty, or has a space or control character in it', 64)
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\n`)
  return words.join(' ') + '\n' + lines.join('')
}

/** Returns the head of a message with its number, which its answer repeats in `to`. */
function numbered({ number, words, fields }) {
  return head(words, { number, ...fields })
}

/** Whether a message is a durable FETCH, whose answer may come after those to later messages. */
function isDurable({ words, fields }) {
  return words[0] === 'FETCH' && fields.durable === 'yes'
}

/** Connection of a client. Closing it removes its requests. */
export class Bus extends Connection {
  #hello
  #lease
  #token
  #sent = 0
  #answered = 0
  #acknowledged
  /** Number of times the session was resumed. */
  #resumptions = 0
  /**
   * Messages of a session with a lease that the broker may not have received, and durable FETCHes without an answer, in the
   * order of their numbers: number, words and fields.
   */
  #log = []
  /** Messages received while a body was read, and errors that name a message. */
  #waiting = []

  /**
   * Connects and performs the handshake. `pull`: bodies come over the connection and not in files, for programs that cannot
   * open the files of the broker. `lease`: seconds for which the broker keeps the session of a broken connection; `receive`
   * resumes the session.
   */
  static async connect({ pull = false, lease = 0 } = {}) {
    const bus = new Bus()
    bus.#lease = lease
    bus.#hello = { ...(lease && { lease }), ...(pull && { bodies: 'pull' }) }
    bus.#token = (await bus._greet('bus', ['HELLO', 'EAR/1'], bus.#hello)).fields.token
    return bus
  }

  /** Waits for the next message. Skips terminals that the broker redelivers with the same number. */
  async receive() {
    let message = this.#waiting.shift()
    while (!message) message = await this.#receiveOrResume()
    if (message instanceof Refusal) throw message
    return message
  }

  /** Yields the parts of a body with the field `pull`, in order. */
  async *pull({ fields }) {
    const length = Number(fields.length), hash = createHash('sha256'), parts = new Map()
    let requested = 0, taken = 0, resumptions = this.#resumptions
    while (taken < length) {
      if (resumptions !== this.#resumptions) { // The broken connection had READs without an answer.
        resumptions = this.#resumptions
        requested = taken
        parts.clear()
      } else if (requested < Math.min(length, taken + OPEN_READS * PIECE_BYTES)) {
        this._sendMessage(['READ', fields.seq, `${requested}`, `${Math.min(PIECE_BYTES, length - requested)}`])
        requested += PIECE_BYTES
      } else {
        const message = await this.#receiveOrResume().catch(error => {
          if (!(error instanceof Refusal)) throw error
          return error // of another message, for the next `receive`
        })
        if (message?.verb === 'DATA') {
          if (message.operands[0] !== fields.seq) continue
          const { error, detail } = message.fields
          if (error) throw new EarshotError(`${error}: ${detail}`)
          parts.set(Number(message.operands[1]), message.body)
        } else if (message && message.verb !== 'PROGRESS') {
          this.#waiting.push(message)
        }
        for (let part; (part = parts.get(taken)); taken += PIECE_BYTES) {
          if (part.length !== Math.min(PIECE_BYTES, length - taken)) throw new EarshotError('a part of the body is missing')
          parts.delete(taken)
          hash.update(part)
          yield part
        }
      }
    }
    if (fields['sha-256'] && fields['sha-256'] !== hash.digest('hex'))
      throw new EarshotError('the body has another hash than its result')
  }

  close() {
    if (this.#token) this._send('BYE\n')
    super.close()
  }

  _sendMessage(words, fields = {}) {
    if (['ACK', 'READ'].includes(words[0])) return this._send(head(words, fields))
    const entry = { number: ++this.#sent, words, fields }
    this._send(numbered(entry))
    if (this.#token) this.#log.push(entry)
  }

  /** Returns the next message, or undefined after it has resumed the session over a new connection. */
  async #receiveOrResume() {
    try {
      const message = await super.receive()
      this._confirm(message)
      return message
    } catch (error) {
      if (!this.#token || !(error instanceof Unreachable)) throw error
      await this.#resume(error)
    }
  }

  /** Connects again, resumes the session, and repeats the messages that the broker has not received. */
  async #resume(error) {
    const end = performance.now() + 1000 * this.#lease
    for (let pause = 10; performance.now() < end; pause = Math.min(2 * pause, 1000)) {
      await sleep(pause)
      super.close()
      try {
        const state = { ...this.#hello, token: this.#token, unanswered: this.#unanswered }
        const { resumed } = (await this._greet('bus', ['HELLO', 'EAR/1'], state)).fields
        if (resumed === undefined) throw new EarshotError('the session has ended: ask again', NO_BROKER)
        return this.#sendAgain(Number(resumed))
      } catch (failure) {
        if (!(failure instanceof Unreachable)) throw failure
      }
    }
    throw error
  }

  /** Lowest number whose answer is missing. That to a durable FETCH may come after those to later messages. */
  get #unanswered() {
    return Math.min(this.#answered + 1, this.#log[0]?.number ?? Infinity)
  }

  /** Repeats the messages that the broker has not received, and asks each QUERY without an answer again. */
  #sendAgain(resumed) {
    this.#resumptions++
    this.#sent = resumed
    const received = this.#log.filter(entry => entry.number <= resumed && isDurable(entry))
    const again = this.#log.filter(({ number, words }) => number > resumed || words[0] === 'QUERY')
    this.#log = [...received, ...again]
    if (this.#acknowledged) this._sendMessage(['ACK', this.#acknowledged])
    for (const entry of again) {
      entry.number = ++this.#sent
      this._send(numbered(entry))
    }
  }

  /** Drops the message that an answer names, or that a terminal ends, and all before it but durable FETCHes from the log. */
  _confirm({ isTerminal, operands, fields }) {
    const isItsFetch = ({ words }) => words[0] === 'FETCH' && words[1] === operands[0] && words[2] === operands[1]
    const number = Number(fields.to ?? (isTerminal && this.#log.find(isItsFetch)?.number) ?? 0)
    if (fields.to) this.#answered = Math.max(this.#answered, number)
    const isKept = entry => entry.number > number || (entry.number < number && isDurable(entry))
    if (this.#log[0]?.number <= number) this.#log = this.#log.filter(isKept)
  }

  /** Requests a URL. The fields are those of FETCH: `{ priority: 'high', timeout: 5 }`. */
  fetch(handler, request, url, fields = {}) {
    this._sendMessage(['FETCH', handler, request, url], fields)
  }

  /** Removes a handler with all its requests. The answer is REMOVED with the number of pending requests. */
  remove(handler) {
    this._sendMessage(['REMOVE', handler])
  }

  /** Cancels one request. The answer is REMOVED with its ID, and 1 if it was pending or 0. */
  cancel(handler, request) {
    this._sendMessage(['REMOVE', handler, request])
  }

  /** Subscribes to a handler, or with a trailing slash to all handlers below it. The answer is OK. */
  subscribe(pattern) {
    this._sendMessage(['SUBSCRIBE', pattern])
  }

  /** Acknowledges a terminal. Unacknowledged terminals fill the delivery window. */
  acknowledge(message) {
    if (message.fields.seq === undefined) return
    this.#acknowledged = message.fields.seq
    this._sendMessage(['ACK', message.fields.seq])
  }
}

/** Connection of a worker, protocol EARW/1 (protocols/6-workers.md). */
export class Worker extends Connection {
  /** Connects as a worker for URLs of a scheme, with `slots` concurrent jobs. */
  static async connect(scheme, slots) {
    const worker = new Worker()
    await worker._greet('work', ['READY', 'EARW/1'], { slots, schemes: scheme, pid: process.pid, drain: 'yes' })
    return worker
  }

  /** Completes a JOB with a text as its response. */
  done(attempt, type, text) {
    this._sendMessage(['DONE', attempt, '200'], { length: Buffer.byteLength(text) }, `content-type: ${type}\n`, text)
  }

  /** Fails a JOB. With the code worker-failed, clients receive `detail`, which is one line. */
  failed(attempt, code, detail) {
    this._sendMessage(['FAILED', attempt, code], { detail })
  }

  /** Answers a PING of the broker. */
  pong() {
    this._sendMessage(['PONG'])
  }

  /** Ends the worker's session. */
  bye() {
    this._sendMessage(['BYE'])
  }
}

/** Runs a program with a bus. Reports a failure on standard error and as the exit code. */
export async function run(program, connect = Bus.connect) {
  process.stdout.on('error', fail)
  try {
    const bus = await connect()
    await program(bus)
    bus.close()
  } catch (error) {
    fail(error)
  }
}

function fail(error) {
  console.error(`earshot: ${error.message}`)
  process.exit(error.status ?? FAILED)
}

/** Prints the usage of a program and exits. */
export function usage(text) {
  console.error(`usage: ${text}`)
  process.exit(64)
}

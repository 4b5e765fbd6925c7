// A ZeroMQ DEALER over a Unix socket: ZMTP 3.0 (rfc.zeromq.org/spec/23), mechanism NULL, on `net` alone.

import net from 'node:net'
import { once } from 'node:events'

const MORE = 1, LONG = 2, COMMAND = 4

export class Dealer {
  #socket
  #frames

  /** Connects and completes the handshake. A message sent before the peer's READY may end the connection. */
  static async connect(path) {
    const dealer = new Dealer()
    const socket = dealer.#socket = net.connect(path)
    await once(socket, 'connect')
    const greeting = Buffer.alloc(64)
    greeting.write('ff00000000000000007f0300', 'hex') // signature, version 3.0
    greeting.write('NULL', 12)
    socket.write(greeting)
    // The command READY with one property. The length of a name takes one byte, the length of a value four.
    dealer.#write(COMMAND, Buffer.from('\x05READY\x0bSocket-Type\0\0\0\x06DEALER', 'latin1'))
    dealer.#frames = received(socket)
    const { value, done } = await dealer.#frames.next()
    const ready = !done && value.flags & COMMAND && value.frame.toString('latin1', 1, 6) === 'READY'
    if (!ready) throw new Error('the peer is not a ZeroMQ ROUTER')
    return dealer
  }

  /** Sends a message. Each frame is a string or a buffer. */
  send(...frames) {
    frames.forEach((frame, index) => this.#write(index < frames.length - 1 ? MORE : 0, Buffer.from(frame)))
  }

  /** Yields messages, each an array of buffers, until the peer closes the connection. */
  async *messages() {
    let message = []
    for await (const { flags, frame } of this.#frames) {
      if (flags & COMMAND) continue // a DEALER of version 3.0 ignores commands
      message.push(frame)
      if (flags & MORE) continue
      yield message
      message = []
    }
  }

  /** Flushes pending output, then closes the connection. */
  close() {
    this.#socket.end(() => this.#socket.destroy())
  }

  #write(flags, frame) {
    const long = frame.length > 255
    const head = Buffer.alloc(long ? 9 : 2)
    head[0] = flags | (long ? LONG : 0)
    if (long) head.writeBigUInt64BE(BigInt(frame.length), 1)
    else head[1] = frame.length
    this.#socket.write(Buffer.concat([head, frame]))
  }
}

/** Yields the frames after the greeting. */
async function* received(socket) {
  let bytes = Buffer.alloc(0), greeted = false
  for await (const chunk of socket) {
    bytes = Buffer.concat([bytes, chunk])
    if (!greeted && bytes.length >= 64) {
      if (bytes[0] !== 0xff || bytes[10] < 3) throw new Error('the peer does not speak ZMTP 3')
      greeted = true
      bytes = bytes.subarray(64)
    }
    while (greeted && bytes.length >= 2) {
      const flags = bytes[0], start = flags & LONG ? 9 : 2
      if (bytes.length < start) break
      const end = start + (flags & LONG ? Number(bytes.readBigUInt64BE(1)) : bytes[1])
      if (bytes.length < end) break
      yield { flags, frame: bytes.subarray(start, end) }
      bytes = bytes.subarray(end)
    }
  }
}

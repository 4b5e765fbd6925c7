internal import EarshotWire

/// The bounds of a worker, each with its reason.
enum Limits {
    /// Bytes that a response's header fields have room for at once: enough for most, few beside a transfer's other
    /// memory.
    static let usualFieldBytes = 512
    /// Bytes that a body in memory has room for at once when its length is announced: what is usual, and little beside
    /// what a server makes a worker keep anyway.
    static let reservedBytes = 128 * 1024
    /// Freed bytes that a worker keeps: 64 slots with bodies of 64 KiB have as much in buffers and bodies, which come
    /// and go with each transfer.
    static let freeBytes: Int32 = 8 << 20
    /// Messages taken from the broker in one pass: transfers and timers get their turn between, and the first of many
    /// jobs is under way, and its answer sent, before the last is read.
    static let messagesPerPass = 32
    /// Bytes a file may grow by before it is looked again how much is free on its disk.
    static let roomBytes = 4 << 20
    /// Bytes of a body in a file that the loop hashes itself; the rest is hashed by threads. So small bodies wait for
    /// nobody, and large ones, of which a GiB takes half a second, hold nobody up.
    static let ownHashBytes = 2 << 20
    /// Bytes that a decoder writes in one step: few calls for a large body, and within the processor's cache.
    static let decodedPieceBytes = 64 << 10
    /// Bytes that the first of two decoders writes in one step, for the second to read.
    static let betweenBytes = 16 << 10
    /// Decoded bytes of all transfers in one pass: some milliseconds of work, so that a small transfer beside a bomb
    /// waits no longer.
    static let decodedBytesPerPass = 2 << 20
    /// Decoded bytes of one transfer before the next has its turn.
    static let decodedBytesPerTurn = 512 << 10
    /// Decoded bytes that a step counts as at least: a step without output takes time as well.
    static let leastStepBytes = 1 << 10
    /// Decoded bytes up to which the ratio of a body is its own affair: small bodies may be very repetitive, and do no
    /// harm.
    static let freeDecodedBytes = 16 << 20
    /// How long the body of a redirect may take to end, so that its connection can be used again.
    static let redirectGrace = Duration.milliseconds(100)
    /// Bytes that are worth waking a thread for.
    static let hashStepBytes = 4 << 20
    /// Threads that hash: one reads while another computes.
    static let hashThreads = 2
    /// Bytes they read at a time.
    static let hashPieceBytes = 1 << 20
    /// Terminals that may wait to be sent before no more messages are read: each slot can have one, and refusals come
    /// beside them.
    static func waitingTerminals(slots: Int) -> Int { 2 * slots + 256 }
    /// Transfers a process can run with so many descriptors. A transfer has two
    /// sockets while it connects, and a file; a name lookup and the loop have some.
    static func slots(descriptors: Int) -> Int { max(1, (descriptors - 64) / 3) }
    /// Transfers in one multi handle before another takes the next: up to there its own cost stays small.
    static let mostShardTransfers = 128
    /// Slots for which there is one multi handle: fewer than it may run, so that there is always one with room, and its
    /// server's first with some luck.
    static let usualShardTransfers = 80
    /// Connections that a multi handle keeps which is the only one.
    static let onlyShardConnections = 512
    /// Names whose answers are kept.
    static let names = 4096
    /// How long a positive answer is kept, whatever the server says: not at all would ask again for each request.
    static let positiveNameLifetime = Duration.seconds(1)...Duration.seconds(3_600)
    /// How long it is known that a name does not exist.
    static let unknownNameLifetime = Duration.seconds(5)
    /// How long a failed lookup is not tried again: it may be over soon.
    static let failedNameLifetime = Duration.seconds(1)
    /// Bytes of a file of certificates or of a key: four times the bundle of a system.
    static let certificateBytes = 1 << 20
    /// Periods of `timeout` in which the header of a response must be complete, from its first byte: a server that
    /// sends a byte in each would hold a slot for days.
    static let headTimeouts = 10
    /// How long what runs may go on once the worker shall leave.
    static let drainTime = Duration.seconds(10)
    /// Bytes of a frame of the broker: a request's body, or a head with some room.
    static let frameBytes = WireLimits.requestBodyBytes + WireLimits.headBytes
    /// Messages that may wait for the broker's socket: terminals beyond them wait here, and can still be taken back.
    static let unsentMessages = 256
    /// How long the last messages may take to leave the process.
    static let lingerMilliseconds: Int32 = 1000
    /// Between two attempts to be taken in by a broker that hangs up; the second doubles up to the last.
    static let reconnectDelay = (first: Duration.milliseconds(1), last: Duration.milliseconds(100))
    /// Bytes of a sentence in a message or a log.
    static let sentenceBytes = 200
    /// Bytes that are read of a program at a time: what a pipe holds.
    static let pieceBytes = 65_536
    /// Such pieces in one pass: other programs and the broker get their turn between.
    static let piecesPerPass = 16
    /// Rounds of them after the program has ended: a pipe holds 1 MiB at most, unless somebody may have more.
    static let lastPieces = 4
    /// How long a program may take to end once nobody waits for it: time to tidy up.
    static let programGrace = Duration.seconds(2)
}

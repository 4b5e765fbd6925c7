internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Bounds and constants of a worker, each with its reason.
enum Limits {
    /// Initial capacity for a response's header fields, in bytes: enough for most, and small beside a transfer's other
    /// memory.
    static let initialFieldCapacityBytes = 512
    /// Maximum memory reserved for an announced body, in bytes. Covers common bodies and is small beside the memory
    /// that a server can make a worker use anyway.
    static let maximumReservedBodyBytes = 128 * 1024
    /// Free memory that the allocator retains, in bytes: the buffers and bodies of 64 slots with bodies of 64 KiB.
    static let retainedFreeMemoryBytes: Int32 = 8 << 20
    /// Maximum number of broker messages per pass. Transfers and timers run between passes, so the first of many jobs
    /// is started and answered before the last is read.
    static let messagesPerPass = 32
    /// Growth of a file in bytes after which the free disk space is checked again.
    static let spaceCheckIntervalBytes = 4 << 20
    /// Prefix of a body in a file that the loop hashes itself, in bytes. Small bodies need no thread, and large ones,
    /// at half a second for a GiB, do not block the loop.
    static let inlineHashedPrefixBytes = 2 << 20
    /// Output buffer of a decoding step, in bytes: few steps for a large body, and small enough for the processor's
    /// cache.
    static let decodingBufferBytes = 64 << 10
    /// Output buffer of the first of two decoders, in bytes.
    static let intermediateBufferBytes = 16 << 10
    /// Maximum decoded bytes of all transfers per pass. They take some milliseconds, which bounds the delay of other
    /// transfers next to a decompression bomb.
    static let decodedBytesPerPass = 2 << 20
    /// Maximum decoded bytes of one transfer per turn.
    static let decodedBytesPerTurn = 512 << 10
    /// Minimum cost of a decoding step, in bytes, because a step without output takes time as well.
    static let minimumDecodingStepBytes = 1 << 10
    /// Decoded bytes of a body before its compression ratio is checked. Small bodies may be very repetitive without
    /// harm.
    static let uncheckedDecodedBytes = 16 << 20
    /// Encoded bytes of a body that may decode to nothing: headers, empty blocks, skippable frames, and bytes after the
    /// end. Far above those of an honest body, of which the index of a large zstd file is the longest.
    static let maximumBytesDecodedToNothing = 1 << 20
    /// Maximum number of encoded bytes for each decoded one beyond `maximumBytesDecodedToNothing`. A stream that is
    /// flushed after each byte has eight, a gzip member of one byte 21.
    static let maximumCodedBytesPerDecodedByte = 64
    /// Growth of a body in bytes that is reported to the broker at once. The spool exceeds its limit by little more for
    /// each transfer. A thousand messages for a GiB are few.
    static let unreportedGrowthBytes = 1 << 20
    /// Time for the body of a redirect to end, so that its connection can be reused.
    static let redirectGrace = Duration.milliseconds(100)
    /// Minimum length of a body that a worker leaves to the next broker, in bytes. Less is sooner received again.
    static let minimumPartialBodyBytes = 1 << 20
    /// Minimum distance of checkpoints in bytes: at most so many are received again after a power failure, and one more
    /// step of the hash.
    static let minimumCheckpointDistanceBytes = 16 << 20
    /// Minimum time between checkpoints, which wait for the disk. A fast transfer makes few, and a short one none.
    static let minimumCheckpointInterval = Duration.seconds(1)
    /// Maximum number of bytes since the last checkpoint for which a thread waits until they are on the disk. A body
    /// that arrives faster than this in each `minimumCheckpointInterval` has no checkpoints.
    static let maximumUnsyncedBytes = 64 << 20
    /// Minimum number of unhashed bytes for which a thread is started.
    static let minimumHashRangeBytes = 4 << 20
    /// Number of hash threads: one reads while the other computes.
    static let hashThreads = 2
    /// Bytes per read of a hash thread.
    static let hashReadBytes = 1 << 20
    /// Maximum number of queued terminals before reading stops. Each slot can have one, in addition to refused jobs.
    static func maximumQueuedTerminals(slots: Int) -> Int { 2 * slots + 256 }
    /// Returns the number of transfers for which the descriptors suffice. A transfer needs two sockets while it
    /// connects, and a file. Name lookups and the loop need the rest.
    static func supportedSlots(descriptors: Int) -> Int {
        (descriptors
            - ResourceLimits.reservedDescriptors(ofLimit: descriptors, minimum: idleWorkerDescriptors, maximum: 64))
            / descriptorsPerSlot
    }
    static let descriptorsPerSlot = 3
    /// Descriptors of a worker with an idle loop, its name lookups and the files of its start.
    private static let idleWorkerDescriptors = 24
    /// Smallest limit of descriptors with which a worker can serve.
    static let minimumDescriptors = idleWorkerDescriptors + descriptorsPerSlot
    /// Maximum number of transfers per multi handle before the next one is used. Up to this number the cost per call is
    /// small.
    static let maximumShardTransfers = 128
    /// Slots per multi handle. Fewer than its maximum, so that one with room always exists, often the preferred one of
    /// a server.
    static let slotsPerShard = 80
    /// Maximum number of connections of a single multi handle.
    static let singleShardConnections = 512
    /// Maximum number of cached name lookups.
    static let maximumCachedNames = 4096
    /// Maximum number of running name lookups whose jobs have ended: more than the hosts of a page of pictures, and some
    /// kilobytes of c-ares' memory each. A lookup without an answer takes seconds, during which cancelled jobs could
    /// start many. Beyond it a cancelled job keeps its slot until the answer, so the slots of its user bound its
    /// lookups.
    static let maximumAbandonedLookups = 1024
    /// Minimum and maximum cache time of an address. The minimum overrides shorter server values, which would cause a
    /// lookup for each request.
    static let addressCacheTimeRange = Duration.seconds(1)...Duration.seconds(3_600)
    /// Cache time of the answer that a name does not exist.
    static let unknownNameCacheTime = Duration.seconds(5)
    /// Cache time of a failed lookup. Short, because the failure may be transient.
    static let failedLookupCacheTime = Duration.seconds(1)
    /// Maximum size of the file of the option `ca-file`, in bytes: seventy times a system's certificate bundle.
    static let caFileBytes = 16 << 20
    /// Time limit of a response's header from its first byte, as a multiple of `timeout`. Without it, a server that
    /// sends one byte per `timeout` would hold a slot for days.
    static let headerTimeoutFactor = 10
    /// Time for running jobs to finish while the worker drains.
    static let drainTime = Duration.seconds(10)
    /// Maximum length of a frame from the broker, in bytes: a request's body, or a head with some reserve.
    static let frameBytes = WireLimits.requestBodyBytes + WireLimits.headBytes
    /// Maximum number of messages in the socket's queue. Further terminals wait in the worker, where they can be
    /// withdrawn.
    static let unsentMessages = 256
    /// Linger time of the last messages at exit, in milliseconds.
    static let lingerMilliseconds: Int32 = 1000
    /// Pauses between attempts to connect to a broker that is away or closes the connection.
    static let reconnectBackoff = Backoff(initialMilliseconds: 1, maximumMilliseconds: 100)
    /// Maximum length of a sentence in a message or a log, in bytes.
    static let sentenceBytes = 200
    /// Bytes per read from a program: the default capacity of a pipe.
    static let programReadBytes = 65_536
    /// Maximum number of such reads per pass and program, for fairness to other programs and the broker.
    static let programReadsPerPass = 16
    /// Rounds of reads after a program's end. A pipe holds at most 1 MiB unless a privileged process raised its
    /// capacity.
    static let readRoundsAfterProgramExit = 4
    /// Time for a program to exit after SIGTERM before it is killed.
    static let programExitGrace = Duration.seconds(2)
}

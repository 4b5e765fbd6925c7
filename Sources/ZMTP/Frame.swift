internal import EarshotLoop

/// Encoding of frame headers: one byte of flags, and a length of one or eight bytes.
enum Frame {
    struct Header: Equatable {
        let hasMore: Bool
        let isCommand: Bool
        /// Length of the header itself in bytes.
        let headerBytes: Int
        /// Length of the frame's content in bytes.
        let count: UInt64
    }

    private static let moreFlag: UInt8 = 1
    private static let longFlag: UInt8 = 2
    private static let commandFlag: UInt8 = 4

    /// Number of bytes that determine the length of a header.
    static let minimumHeaderBytes = 2

    static func headerBytes(flags: UInt8) -> Int { flags & longFlag == 0 ? 2 : 9 }

    /// - Returns: nil for invalid flags. A command consists of one frame.
    static func parseHeader(_ byte: (Int) -> UInt8) -> Header? {
        let flags = byte(0)
        guard flags & ~(moreFlag | longFlag | commandFlag) == 0,
            flags & (moreFlag | commandFlag) != moreFlag | commandFlag
        else {
            return nil
        }
        let bytes = headerBytes(flags: flags)
        let count = (1..<bytes).reduce(0 as UInt64) { $0 << 8 | UInt64(byte($1)) }
        return Header(
            hasMore: flags & moreFlag != 0, isCommand: flags & commandFlag != 0, headerBytes: bytes, count: count)
    }

    /// Returns the header of a single frame of `count` bytes.
    static func encodedHeader(count: Int, isCommand: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        appendHeader(to: &bytes, count: count, flags: isCommand ? commandFlag : 0)
        return bytes
    }

    /// Appends the header of a frame of a message.
    static func appendHeader(to bytes: inout [UInt8], count: Int, hasMore: Bool) {
        appendHeader(to: &bytes, count: count, flags: hasMore ? moreFlag : 0)
    }

    private static func appendHeader(to bytes: inout [UInt8], count: Int, flags: UInt8) {
        guard count > 255 else {
            bytes.append(flags)
            bytes.append(UInt8(truncatingIfNeeded: count))
            return
        }
        bytes.append(flags | longFlag)
        for shift in stride(from: 56, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: count >> shift))
        }
    }
}

/// Message of one or two frames, as `MessageStream` receives and sends it.
public struct Message: Equatable, Sendable {
    /// The first frame.
    public var head: [UInt8]
    /// The second frame.
    public var body: [UInt8]?
    /// Whether the message had more frames, which were discarded.
    public var hadSurplusFrames = false

    public init(head: [UInt8], body: [UInt8]? = nil) {
        self.head = head
        self.body = body
    }
}

/// Part of an open file that is sent as the second frame of a message. The kernel sends it without a copy in this
/// process, so the file must not change.
public final class FilePart {
    /// Length in bytes.
    public let count: Int
    private let descriptor: Int32
    private let offset: Int

    /// Takes ownership of `descriptor`.
    public init(_ descriptor: Int32, offset: Int, count: Int) {
        self.descriptor = descriptor
        self.offset = offset
        self.count = count
    }

    deinit { UnixSocket.close(descriptor) }

    /// Sends the bytes after the first `sent` ones, as far as the kernel accepts them.
    func send(to socket: Int32, after sent: Int) -> UnixSocket.TransferResult {
        UnixSocket.sendFile(socket, file: descriptor, fromOffset: offset + sent, byteCount: count - sent)
    }
}

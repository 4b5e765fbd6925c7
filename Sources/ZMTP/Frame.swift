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
    private static let long: UInt8 = 2
    private static let command: UInt8 = 4

    /// Number of bytes that determine the length of a header.
    static let leastBytes = 2

    static func headerBytes(flags: UInt8) -> Int { flags & long == 0 ? 2 : 9 }

    /// - Returns: nil for invalid flags. A command consists of one frame.
    static func header(_ byte: (Int) -> UInt8) -> Header? {
        let flags = byte(0)
        guard flags & ~(moreFlag | long | command) == 0, flags & (moreFlag | command) != moreFlag | command else {
            return nil
        }
        let bytes = headerBytes(flags: flags)
        let count = (1..<bytes).reduce(0 as UInt64) { $0 << 8 | UInt64(byte($1)) }
        return Header(
            hasMore: flags & moreFlag != 0, isCommand: flags & command != 0, headerBytes: bytes, count: count)
    }

    /// Returns the header of a single frame of `count` bytes.
    static func header(count: Int, isCommand: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        append(to: &bytes, count: count, flags: isCommand ? command : 0)
        return bytes
    }

    /// Appends the header of a frame of a message.
    static func appendHeader(to bytes: inout [UInt8], count: Int, hasMore: Bool) {
        append(to: &bytes, count: count, flags: hasMore ? moreFlag : 0)
    }

    private static func append(to bytes: inout [UInt8], count: Int, flags: UInt8) {
        guard count > 255 else {
            bytes.append(flags)
            bytes.append(UInt8(truncatingIfNeeded: count))
            return
        }
        bytes.append(flags | long)
        for shift in stride(from: 56, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: count >> shift))
        }
    }
}
